"""Changes of the records of jobs in flight: the new record, the one it is made from, and what it may overwrite."""

from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from signalbox.jobs import life
from signalbox.jobs.attempts import Attempt
from signalbox.jobs.records import Settled, settled
from signalbox.jobs.times import RUN
from signalbox.program.errors import Conflict
from signalbox.wire.messages import Record, State, header

A = TypeVar("A", bound=Attempt)
Make = Callable[..., Record]
"""A transition of :mod:`signalbox.jobs.life`, to be called with a record and, for an end, ``now``."""


class WriteOutcome(Enum):
    """ours: written. unwritten: a claim that was taken back, its job's end will carry it.

    over: the job had ended already. lost: another attempt has the job.
    """

    OURS = "ours"
    UNWRITTEN = "unwritten"
    OVER = "over"
    LOST = "lost"


class RecordChange(Generic[A]):
    """One record to write. make: the new record from the present one; body: what it carries.

    before, expect: the record it was made from and its revision. They are not the attempt's own, which change when a
    cancellation or another's end comes meanwhile: this record would then overwrite one that it does not include.
    """

    __slots__ = ("attempt", "before", "body", "expect", "is_claim", "make", "outcome", "record", "text")

    def __init__(self, attempt: A, make: Make, body: bytes = b"", *, is_claim: bool = False) -> None:
        self.attempt = attempt
        self.make = make
        self.body = body
        self.is_claim = is_claim
        self.before: Record | None = None
        self.expect = 0
        self.record: Record | None = None
        self.text = ""
        self.outcome: WriteOutcome | None = None

    def prepare(self, now: float) -> bool:
        """Compute the record from what we know of the present one; False if the job has ended.

        An owner's cancellation wins over any outcome, also one that was read while this was written; and so does a
        deadline that was drawn closer while the job waited, if its run began after that.
        """
        attempt = self.attempt
        self.before, self.expect = attempt.record, attempt.revision
        try:
            before = attempt.record or life.first_record(attempt.job, State.QUEUED)
            is_unclaimed = self.is_claim or attempt.claim is not None
            if is_unclaimed and life.is_overdue(before, attempt.job, _began_at(attempt, now)):
                self.record, self.body = life.expired(before, now=now, stages=attempt.stages), b""
            elif self.is_claim:
                self.record = self.make(before)
            else:
                if attempt.claim is not None:
                    before = attempt.claim(before)
                if before.cancel_requested:
                    self.record, self.body = life.cancelled(before, now=now, stages=attempt.stages), b""
                else:
                    self.record = self.make(before, now=now)
        except Conflict:
            self.outcome = WriteOutcome.OVER
            return False
        self.text = header(self.record)
        return True

    def won(self, revision: int) -> None:
        """Note that the record is written, at ``revision``."""
        self.attempt.claim = None
        self.attempt.record = self.record
        self.attempt.revision = revision
        self.outcome = WriteOutcome.OURS

    def settled(self, found: Record | None, revision: int) -> Settled:
        """Settle a write by :func:`records.settled`."""
        assert self.record is not None, "prepared before it is written"
        return settled(found, revision, self.record, self.expect)

    def may_write_over(self, found: Record | None, *, is_attended: bool) -> bool:
        """Whether a record that another write has put there may be overwritten. is_attended: by its holder."""
        is_claim = self.is_claim or self.attempt.claim is not None
        if found is None or found.state is State.QUEUED:
            return is_claim
        if is_claim:
            return not is_attended
        # Our own attempt: a request to cancel is in it, or it was only written again, at the end of the stream.
        return self.before is not None and _attempt(self.before) == _attempt(found)


def _began_at(attempt: Attempt, now: float) -> float:
    """When its run began; ``now`` where it has not."""
    return next((at for stage, at in attempt.stages if stage == RUN), now)


def _attempt(record: Record) -> tuple[int, str, int]:
    return (record.attempt, record.worker, record.token)
