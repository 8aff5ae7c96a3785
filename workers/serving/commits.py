"""Claims and endings of jobs: every write to a job's record, by compare-and-set, a batch at a time.

The revision a write expects is the fence: an attempt that was superseded (its lease lost, its
delivery given to another, the job cancelled) loses the compare-and-set and changes nothing. A write
that NATS could not take, or whose outcome is unknown, is settled by reading the record and repeated
for as long as the hold lasts; cancelling the caller ends that.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

from signalbox.bus.answers import header_fields
from signalbox.bus.client import Bus
from signalbox.bus.writes import WITHDRAWN, Group, Write
from signalbox.jobs import deadletters, joblog, life
from signalbox.jobs.payloads import store
from signalbox.jobs.records import Records, is_same_write
from signalbox.program import log
from signalbox.program.errors import (
    Ambiguous,
    Conflict,
    NewerVersion,
    QueueFull,
    SignalboxError,
    StaleRevision,
    Unavailable,
)
from signalbox.wire import names
from signalbox.wire.messages import DeadLetter, ErrorInfo, PayloadRef, Record, State, header
from signalbox.wire.names import Header, Stream
from workers.host import gauges
from workers.serving.inflight import InFlightJob as Held
from workers.serving.inflight import boottime

T = TypeVar("T")
Make = Callable[[Record], Record]
RETRY_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Pauses between repeated writes while NATS is away; the last one repeats."""


SUSPECT_AFTER: Final = 2
"""Attempts that vanished with their worker before a job runs alone: it may be what kills them."""


class Verdict(Enum):
    """ours: written. unwritten: a claim that was taken back, its job's end will carry it.

    over: the job had ended already. lost: another attempt has the job.
    """

    OURS = "ours"
    UNWRITTEN = "unwritten"
    OVER = "over"
    LOST = "lost"


class Change:
    """One record to write. make: the new record from the present one; body: what it carries.

    before, expect: the record it was made from and its revision. Not those in hand, which move on when the owner's wish
    or another's end is heard of meanwhile: this record would then be written over one it knows nothing of.
    """

    __slots__ = ("before", "body", "expect", "held", "is_claim", "make", "record", "text", "verdict")

    def __init__(self, held: Held, make: Make, body: bytes = b"", *, is_claim: bool = False) -> None:
        self.held = held
        self.make = make
        self.body = body
        self.is_claim = is_claim
        self.before: Record | None = None
        self.expect = 0
        self.record: Record | None = None
        self.text = ""
        self.verdict: Verdict | None = None

    def prepare(self, now: float) -> bool:
        """Compute the record from what we know of the present one; False if the job has ended.

        An owner's wish to cancel wins over any outcome, also one that was adopted while this was written.
        """
        held = self.held
        self.before, self.expect = held.record, held.revision
        try:
            before = held.record or life.first_record(held.job, State.QUEUED)
            if held.claim is not None and not self.is_claim:
                before = held.claim(before)
            if before.cancel_requested and not self.is_claim:
                self.record, self.body = life.cancelled(before, now=now, phases=held.phases), b""
            else:
                self.record = self.make(before)
        except Conflict:
            self.verdict = Verdict.OVER
            return False
        self.text = header(self.record)
        return True

    def won(self, revision: int) -> None:
        """It is written."""
        self.held.claim = None
        self.held.record = self.record
        self.held.revision = revision
        self.verdict = Verdict.OURS

    def is_in(self, found: Record) -> bool:
        """Whether ``found`` is what we wanted to write (only its answer was lost)."""
        return self.record is not None and is_same_write(found, self.record)


async def persist(act: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat what may be repeated until NATS answers. The caller's cancellation bounds it."""
    tries = 0
    while True:
        try:
            return await act()
        except Unavailable:
            await _pause(tries)
            tries += 1


async def _pause(tries: int) -> None:
    await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])


class Commits:
    """Writes the records of the jobs of one hold.

    worker, gpu, token: stand in every record. clock: UTC seconds. slow_job_s: see :func:`joblog.ended`.
    trusted_s: for so long a delivery says that its job may be claimed without a record
    (:mod:`workers.recovery.leftovers`).
    """

    def __init__(
        self,
        bus: Bus,
        records: Records,
        *,
        worker: str,
        gpu: str,
        token: int,
        inline_limit_bytes: int,
        clock: Callable[[], float],
        slow_job_s: float = math.inf,
        trusted_s: float = 30.0,
    ) -> None:
        self._bus = bus
        self._records = records
        self._writer = bus.grouped(Stream.STATE)
        self._worker = worker
        self._gpu = gpu
        self._token = token
        self._inline_limit_bytes = inline_limit_bytes
        self._clock = clock
        self._slow_job_s = slow_job_s
        self._trusted_s = trusted_s

    async def refresh(self, held: Held) -> bool:
        """Learn from the leader what the job's record holds. False: the job has ended, and its record has gone."""
        found, may_be_claimed = await self._look(held)
        if found is None:
            held.record, held.revision = None, 0
            return may_be_claimed
        held.record, held.revision, _ = found
        gone = held.record.vanished + (held.record.state is State.RUNNING)
        held.is_alone = held.record.crashes > 0 or gone >= SUSPECT_AFTER
        held.is_cancelled = held.record.cancel_requested
        return True

    async def _look(self, held: Held) -> tuple[tuple[Record, int, bytes] | None, bool]:
        """The record, and whether the job may be claimed without one.

        That is known from a delivery or from the message in the queue, while neither is old: who finds no record later
        than that may come after its end and all that told of it.
        """
        job = held.job
        subject = names.job(job.model, job.priority, job.id)
        while True:
            asked_at = boottime()
            if asked_at - held.known_at > self._trusted_s:
                if await persist(lambda: self._bus.leader_get(Stream.JOBS, subject)) is None:
                    return await persist(lambda: self._records.read(job.id)), False
                held.known_at = asked_at
            found = await persist(lambda: self._records.read(job.id))
            if found is not None or boottime() - held.known_at <= self._trusted_s:
                return found, True

    # ------------------------------------------------------------------------------ changes

    async def claim(self, batch: Sequence[Held], group: Group) -> dict[Held, Verdict]:
        """Claim the jobs of a batch. Only those OURS or UNWRITTEN may be ended.

        Claims still waiting for their turn to be written can be taken back through ``group`` once the
        run has ended; claim and end are then one write, from the same revision.
        """
        changes = [Change(held, make, is_claim=True) for held, make in self._claims(batch)]
        await self.apply(changes, group)
        for change in changes:
            if change.verdict is Verdict.UNWRITTEN:
                change.held.claim = change.make
        return {change.held: change.verdict or Verdict.LOST for change in changes}

    def claim_with_the_end(self, batch: Sequence[Held]) -> dict[Held, Verdict]:
        """Claim the jobs of a batch that has already run: one write for claim and end."""
        for held, make in self._claims(batch):
            held.claim = make
        return dict.fromkeys(batch, Verdict.UNWRITTEN)

    def _claims(self, batch: Sequence[Held]) -> list[tuple[Held, Make]]:
        now = self._clock()

        def claimed(held: Held) -> Make:
            return lambda before: life.claimed(
                held.job, before, worker=self._worker, gpu=self._gpu, token=self._token, now=now
            )

        return [(held, claimed(held)) for held in batch]

    async def success(self, held: Held, frame: bytes, *, batch: int) -> Change:
        """The change that commits a result; a large one goes to the payload store first."""
        if held.is_cancelled:
            return self.cancellation(held)
        size = len(frame)
        ref: PayloadRef | None = None
        if size > self._inline_limit_bytes:
            part = f"out{self._token}"  # one attempt per token can get so far
            ref = await persist(lambda: store(self._bus, held.job.id, part, frame))
            frame = b""
        return Change(
            held,
            lambda before: life.succeeded(
                before, now=self._clock(), phases=held.phases, batch=batch, size_bytes=size, ref=ref
            ),
            frame,
        )

    def failure(self, held: Held, error: ErrorInfo) -> Change:
        """The change that ends a job with an error."""
        return Change(held, lambda before: life.failed(before, error, now=self._clock(), phases=held.phases))

    def expiry(self, held: Held) -> Change:
        """The change that ends a job whose deadline passed before it ran."""
        return Change(held, lambda before: life.expired(before, now=self._clock(), phases=held.phases))

    def cancellation(self, held: Held) -> Change:
        """The change that ends a job because its owner asked."""
        return Change(held, lambda before: life.cancelled(before, now=self._clock(), phases=held.phases))

    def requeue(self, held: Held, error: SignalboxError, *, is_crash: bool) -> Change:
        """The change that puts a job back to ``queued``."""
        why = ErrorInfo(code=error.code, message=error.public_message)
        return Change(held, lambda before: life.requeued(before, why, is_crash=is_crash))

    async def give_up(self, hand: Iterable[Held]) -> None:
        """Put back to ``queued``, without a strike, what this hold has claimed and not ended.

        The rest needs no word: its record is another's, or says ``queued`` already.
        """
        why = Unavailable("The worker was stopped before the run had ended.")
        await self.apply(
            [
                self.requeue(held, why, is_crash=False)
                for held in hand
                if held.record is not None and self.mine(held.record)
            ]
        )

    def mine(self, record: Record) -> bool:
        """Whether this hold claimed the job, and its record is not written again yet."""
        claim = record.state, record.worker, record.gpu, record.token
        return claim == (State.RUNNING, self._worker, self._gpu, self._token)

    def old_claims(self, hand: Iterable[Held], older_than_s: float) -> list[Held]:
        """What this hold has claimed and not ended, and whose records lie at their place for so long."""
        before = self._clock() - older_than_s
        return [
            held for held in hand if held.record is not None and held.written_at < before and self.mine(held.record)
        ]

    async def renew(self, held: Held) -> None:
        """Write a claim again as it is, so that it moves to the end of ``STATE``: no older record can go below it.

        It changes nothing that anybody goes by. The job's end, prepared meanwhile from the old place, is tried again
        from the new one. Where another write came first there is nothing to do. Raises as :meth:`Records.write`.
        """
        record, revision = held.record, held.revision
        if record is None or not self.mine(record):
            return
        held.written_at = self._clock()  # also where it fails: the next try has its turn
        try:
            written = await self._records.write(record, expect=revision)
        except StaleRevision:
            return
        if held.revision == revision:
            held.revision = written

    async def dead_letter(self, held: Held, error: ErrorInfo, *, is_crash: bool) -> None:
        """Keep the job itself as a dead letter. Before its terminal record, so that it is not lost."""
        record = held.record or life.first_record(held.job, State.QUEUED)
        if held.claim is not None:
            record = held.claim(record)
        notice = DeadLetter(
            error=error, attempt=record.attempt, crashes=record.crashes + is_crash, worker=self._worker, gpu=self._gpu
        )
        await persist(lambda: deadletters.keep(self._bus, held.job, held.delivery.data, notice))

    # ------------------------------------------------------------------------------ writing

    async def apply(self, changes: Iterable[Change], group: Group | None = None) -> None:
        """Write all changes; each has its verdict on return. Who waits for a terminal one is told."""
        left = [change for change in changes if change.prepare(self._clock())]
        tries = 0
        while left := [change for change in left if await self._may_still_write(change)]:
            outcomes = await self._writer.write_all(
                [
                    Write(names.state(change.held.job.id), change.body, {Header.RECORD: change.text}, change.expect)
                    for change in left
                ],
                group,
            )
            again: list[Change] = []
            is_away = False
            for change, outcome in zip(left, outcomes, strict=True):
                if outcome == WITHDRAWN:
                    change.verdict = Verdict.UNWRITTEN
                elif isinstance(outcome, int):
                    self._won(change, outcome)
                elif isinstance(outcome, StaleRevision | Ambiguous):
                    if await self._resolve(change) and change.prepare(self._clock()):
                        again.append(change)
                elif isinstance(outcome, Unavailable | QueueFull):  # full: until the reconciler makes room
                    is_away = True
                    again.append(change)
                else:
                    raise outcome
            if is_away:
                await _pause(tries)
                tries += 1
            left = again

    def _won(self, change: Change, revision: int) -> None:
        change.won(revision)
        change.held.written_at = self._clock()
        job, record = change.held.job, change.record
        if record is None:
            return
        if not record.state.is_terminal:
            told = joblog.claimed if record.state is State.RUNNING else joblog.retried
            told(record)
            return
        gauges.COMMITS.labels("won").inc()
        joblog.ended(record, phases=change.held.phases, slow_s=self._slow_job_s)
        if job.reply:
            self._bus.send(job.reply, b"", header_fields({Header.RECORD: change.text}), change.body)
            joblog.step("job.replied", record)

    async def _may_still_write(self, change: Change) -> bool:
        """Whether "there is no record yet" is known well enough to be written from; where it is not, look."""
        if change.expect or boottime() - change.held.known_at <= self._trusted_s:
            return True
        return await self._resolve(change) and change.prepare(self._clock())

    async def _resolve(self, change: Change) -> bool:
        """After a lost compare-and-set or answer: read the record and decide. True: write again."""
        held = change.held
        try:
            is_known = await self.refresh(held)
        except NewerVersion:  # a newer worker has the job: it is not ours to write
            is_known = False
        if not is_known:
            change.verdict = Verdict.LOST
            return False
        found = held.record
        if found is not None and change.is_in(found):
            gauges.COMMITS.labels("ambiguous_resolved").inc()
            self._won(change, held.revision)
            return False
        if held.revision == change.expect:
            return True  # the answer was lost and so was the write
        if found is not None and found.state.is_terminal:
            gauges.COMMITS.labels("lost_race").inc()
            change.verdict = Verdict.OVER
            return False
        if self._may_write(change, found):
            return True
        gauges.COMMITS.labels("lost_race").inc()
        log.info("commit.superseded", job=held.job.id, worker=self._worker, token=self._token)
        change.verdict = Verdict.LOST
        return False

    def _may_write(self, change: Change, found: Record | None) -> bool:
        """Whether a record that has moved under us is still ours to write."""
        is_claim = change.is_claim or change.held.claim is not None
        if found is None or found.state is State.QUEUED:
            return is_claim
        if is_claim:
            # Another worker's running attempt is left alone: were its holder dead, the queue would
            # have redelivered the job. An older token of this GPU is a holder proven gone.
            return found.gpu == self._gpu and found.token < self._token
        # Our own attempt: a wish to cancel is in it, or it was only written again, at the end of the stream.
        mine = change.before
        return mine is not None and _attempt(mine) == _attempt(found)


def _attempt(record: Record) -> tuple[int, str, int]:
    return (record.attempt, record.worker, record.token)
