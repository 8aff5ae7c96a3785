"""Claims and endings of jobs: every write to a job's record, by compare-and-set, a batch at a time.

The revision a write expects is the fence: an attempt that was superseded (its lease lost, its
job claimed over by another, cancelled) loses the compare-and-set and changes nothing. A write
that NATS could not take, or whose outcome is unknown, is settled by reading the record and repeated
for as long as the hold lasts; cancelling the caller ends that.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import header_fields
from signalbox.bus.writes import WITHDRAWN, Group, GroupedWrite
from signalbox.jobs import deadletters, joblog, life
from signalbox.jobs.attempts import Attempt, boottime
from signalbox.jobs.changes import A, RecordChange, WriteOutcome
from signalbox.jobs.holders import is_held
from signalbox.jobs.payloads import INLINE_LIMIT_BYTES, store
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.records import Records, Settled
from signalbox.jobs.repair import move_up
from signalbox.program import log, metrics
from signalbox.program.errors import (
    Ambiguous,
    NewerVersion,
    QueueFull,
    SignalboxError,
    StaleRevision,
    Unavailable,
)
from signalbox.wire.messages import DeadLetter, ErrorInfo, PayloadRef, Record, State
from signalbox.wire.names import Header, Stream, state

T = TypeVar("T")
RETRY_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Pauses between repeated writes while NATS is away; the last one repeats."""

COMMITS: Final = metrics.counter(
    "worker_commits", "Ends written: won, lost_race, or ambiguous_resolved by reading.", "outcome"
)
_WON: Final = COMMITS.labels("won")
SUSPECT_AFTER: Final = 2
"""Attempts that vanished with their worker after which a job runs alone: the job may be what kills the workers."""


async def persist(act: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat ``act``, which must be safe to repeat, until NATS answers. The caller's cancellation bounds it."""
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

    worker, gpu, token: written into every record. clock: UTC seconds. slow_job_s: see :func:`joblog.ended`.
    trusted_s: how long after its delivery a job may be claimed without a record
    (:mod:`workers.recovery.endedmessages`).
    """

    def __init__(
        self,
        bus: Bus,
        records: Records,
        *,
        worker: str,
        gpu: str,
        token: int,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
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
        self._claimed = partial(life.claimed, worker=worker, gpu=gpu, token=token)
        self._inline_limit_bytes = inline_limit_bytes
        self._clock = clock
        self._slow_job_s = slow_job_s
        self._trusted_s = trusted_s

    async def refresh(self, attempt: Attempt) -> bool:
        """Learn from the leader what the job's record holds. False: the job has ended, and its record has gone."""
        found, may_be_claimed = await self._read(attempt)
        if found is None:
            attempt.record, attempt.revision = None, 0
            return may_be_claimed
        self.learn(attempt, found[0], found[1])
        return True

    @staticmethod
    def learn(attempt: Attempt, record: Record, revision: int) -> None:
        """Take in what the job's record holds."""
        attempt.record, attempt.revision = record, revision
        gone = record.vanished + (record.state is State.RUNNING)
        attempt.is_alone = record.strikes > 0 or gone >= SUSPECT_AFTER
        attempt.is_cancelled = record.cancel_requested

    async def learn_deadline(self, attempt: Attempt) -> None:
        """Learn from the leader whether a job that nobody runs has another deadline than its message says."""
        try:
            found = await persist(lambda: self._records.read(attempt.job.id))
        except NewerVersion:
            return
        if found is not None and found[0].state is State.QUEUED:
            self.learn(attempt, found[0], found[1])

    async def is_attended(self, record: Record) -> bool:
        """Whether another holder may still end a job whose record was read. Asks until NATS answers.

        An older token of this GPU is a holder proven gone, and what this hold itself has claimed is no other's.
        """
        if record.state is not State.RUNNING:
            return False
        if record.gpu == self._gpu:
            return record.token > self._token
        return await persist(lambda: is_held(self._bus, record.gpu, record.token))

    async def _read(self, attempt: Attempt) -> tuple[tuple[Record, int, bytes] | None, bool]:
        """The record, and whether the job may be claimed without one.

        A fresh delivery, or the message in the queue, proves that. Later a missing record may also mean that the job
        has ended and its record was removed.
        """
        job = attempt.job
        while True:
            asked_at = boottime()
            if asked_at - attempt.known_at > self._trusted_s:
                if await persist(lambda: self._records.queued(job.id)) is None:
                    return await persist(lambda: self._records.read(job.id)), False
                attempt.known_at = asked_at
            found = await persist(lambda: self._records.read(job.id))
            if found is not None or boottime() - attempt.known_at <= self._trusted_s:
                return found, True

    # ------------------------------------------------------------------------------ changes

    async def claim(self, batch: Sequence[A], group: Group) -> dict[A, WriteOutcome]:
        """Claim the jobs of a batch. Only those OURS or UNWRITTEN may be ended.

        Claims still waiting for their turn to be written can be taken back through ``group`` once the
        run has ended; claim and end are then one write, from the same revision.
        """
        now = self._clock()
        changes = [
            RecordChange(
                attempt, partial(self._claimed, attempt.job, now=now, stages=(*attempt.stages,)), is_claim=True
            )
            for attempt in batch
        ]
        await self.apply(changes, group)
        for change in changes:
            if change.outcome is WriteOutcome.UNWRITTEN:
                change.attempt.claim = change.make
        return {change.attempt: change.outcome or WriteOutcome.LOST for change in changes}

    def claim_with_the_end(self, batch: Sequence[A]) -> dict[A, WriteOutcome]:
        """Claim the jobs of a batch that has already run: one write for claim and end."""
        now = self._clock()
        for attempt in batch:
            attempt.claim = partial(self._claimed, attempt.job, now=now, stages=(*attempt.stages,))
        return dict.fromkeys(batch, WriteOutcome.UNWRITTEN)

    async def success(self, attempt: A, frame: bytes, *, batch: int) -> RecordChange[A]:
        """The change that commits a result; a large one goes to the payload store first."""
        if attempt.is_cancelled:
            return self.cancellation(attempt)
        size = len(frame)
        ref: PayloadRef | None = None
        if size > self._inline_limit_bytes:
            part = f"out{self._token}"  # one attempt per token can get so far
            ref = await persist(lambda: store(self._bus, attempt.job.account_id, attempt.job.id, part, frame))
            frame = b""
        make = partial(life.succeeded, stages=attempt.stages, batch=batch, size_bytes=size, ref=ref)
        return RecordChange(attempt, make, frame)

    def failure(self, attempt: A, error: ErrorInfo, *, penalty: Penalty = Penalty.NONE) -> RecordChange[A]:
        """The change that ends a job with an error."""
        return RecordChange(attempt, partial(life.failed, error=error, stages=attempt.stages, penalty=penalty))

    def expiry(self, attempt: A) -> RecordChange[A]:
        """The change that ends a job whose deadline passed before it ran."""
        return RecordChange(attempt, partial(life.expired, stages=attempt.stages))

    def cancellation(self, attempt: A) -> RecordChange[A]:
        """The change that ends a job because its owner asked."""
        return RecordChange(attempt, partial(life.cancelled, stages=attempt.stages))

    def requeue(
        self, attempt: A, error: SignalboxError, *, penalty: Penalty = Penalty.NONE, delay_s: float = 0.0
    ) -> RecordChange[A]:
        """The change that puts a job back to ``queued``, not to run again before ``delay_s`` have passed."""
        why = ErrorInfo(code=error.code, message=error.public_message)
        retry_at = self._clock() + delay_s if delay_s else 0.0
        return RecordChange(
            attempt, partial(life.requeued, error=why, stages=attempt.stages, penalty=penalty, retry_at=retry_at)
        )

    async def give_up(self, in_flight: Iterable[A]) -> None:
        """Put back to ``queued``, without a strike, what this hold has claimed and not ended.

        The rest needs no word: its record is another's, or says ``queued`` already.
        """
        why = Unavailable("The worker was stopped before the run had ended.")
        await self.apply(
            [
                self.requeue(attempt, why)
                for attempt in in_flight
                if attempt.record is not None and self.mine(attempt.record)
            ]
        )

    def mine(self, record: Record) -> bool:
        """Whether this hold claimed the job, and its record is not written again yet."""
        claim = record.state, record.worker, record.gpu, record.token
        return claim == (State.RUNNING, self._worker, self._gpu, self._token)

    def old_claims(self, in_flight: Iterable[A], older_than_s: float) -> list[A]:
        """Attempts that this hold has claimed and not ended, and whose records were last written so long ago."""
        before = self._clock() - older_than_s
        return [
            attempt
            for attempt in in_flight
            if attempt.record is not None and attempt.written_at < before and self.mine(attempt.record)
        ]

    async def renew(self, attempt: Attempt) -> None:
        """Write a claim again as it is, so that it moves to the end of ``STATE``: no older record can go below it.

        It changes nothing that any program depends on. The job's end, prepared meanwhile from the old revision, is
        tried again from the new one. Where another write came first there is nothing to do. Raises as
        :meth:`Records.write`.
        """
        record, revision = attempt.record, attempt.revision
        if record is None or not self.mine(record):
            return
        attempt.written_at = self._clock()  # also where it fails: the next try has its turn
        written = await move_up(self._records, record, revision)
        if written is not None and attempt.revision == revision:
            attempt.revision = written

    async def dead_letter(self, attempt: Attempt, body: bytes, error: ErrorInfo, *, penalty: Penalty) -> None:
        """Keep the job itself as a dead letter, before its terminal record is written, so that it is not lost.

        Not where the job has ended meanwhile: its owner may have deleted it since.
        """
        try:
            found = await persist(lambda: self._records.read(attempt.job.id))
        except NewerVersion:
            found = None
        if found is not None and found[0].state.is_terminal:
            return
        record = attempt.record or life.first_record(attempt.job, State.QUEUED)
        if attempt.claim is not None:
            record = attempt.claim(record)
        record = life.penalized(record, penalty)
        notice = DeadLetter(
            error=error,
            attempt=record.attempt,
            strikes=record.strikes,
            failures=record.failures,
            worker=self._worker,
            gpu=self._gpu,
        )
        await persist(lambda: deadletters.keep(self._bus, attempt.job, body, notice))

    # ------------------------------------------------------------------------------ writing

    async def apply(self, changes: Iterable[RecordChange[A]], group: Group | None = None) -> None:
        """Write all changes; each has its outcome on return. A caller that waits for a terminal record is told."""
        now = self._clock()
        left = [change for change in changes if change.prepare(now)]
        tries = 0
        while left and (left := await self._writable(left)):
            outcomes = await self._writer.write_all(
                [GroupedWrite(state(c.attempt.job.id), c.body, {Header.RECORD: c.text}, c.expect) for c in left], group
            )
            now = self._clock()
            again: list[RecordChange[A]] = []
            is_away = False
            for change, outcome in zip(left, outcomes, strict=True):
                if outcome == WITHDRAWN:
                    change.outcome = WriteOutcome.UNWRITTEN
                elif isinstance(outcome, int):
                    self._won(change, outcome, now)
                elif isinstance(outcome, StaleRevision | Ambiguous):
                    if await self._resolve_anew(change):
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

    def _won(self, change: RecordChange[A], revision: int, now: float) -> None:
        change.won(revision)
        change.attempt.written_at = now
        job, record = change.attempt.job, change.record
        if record is None:
            return
        if not record.state.is_terminal:
            reported = joblog.claimed if record.state is State.RUNNING else joblog.retried
            reported(record)
            return
        _WON.inc()
        joblog.ended(record, slow_s=self._slow_job_s)
        if job.reply:
            self._bus.send(job.reply, b"", header_fields({Header.RECORD: change.text}), change.body)
            if log.is_debug:
                joblog.step("job.replied", record)

    async def _writable(self, changes: list[RecordChange[A]]) -> list[RecordChange[A]]:
        """The changes that may be written. Where "there is no record yet" is not known well enough, look."""
        found: list[RecordChange[A]] = []
        since = boottime() - self._trusted_s
        for change in changes:
            if not change.expect and change.attempt.known_at < since:
                if not await self._resolve_anew(change):
                    continue
                since = boottime() - self._trusted_s
            found.append(change)
        return found

    async def _resolve_anew(self, change: RecordChange[A]) -> bool:
        return await self._resolve(change) and change.prepare(self._clock())

    async def _resolve(self, change: RecordChange[A]) -> bool:
        """After a lost compare-and-set or answer: read the record and decide. True: write again."""
        attempt = change.attempt
        try:
            is_known = await self.refresh(attempt)
        except NewerVersion:  # a newer worker has the job: it is not ours to write
            is_known = False
        if not is_known:
            change.outcome = WriteOutcome.LOST
            return False
        found = attempt.record
        what = change.settled(found, attempt.revision)
        if what is Settled.WRITTEN:
            COMMITS.labels("ambiguous_resolved").inc()
            self._won(change, attempt.revision, self._clock())
            return False
        if what is Settled.UNCHANGED:
            return True
        if found is not None and found.state.is_terminal:
            COMMITS.labels("lost_race").inc()
            change.outcome = WriteOutcome.OVER
            return False
        is_attended = found is not None and await self.is_attended(found)
        if change.may_write_over(found, is_attended=is_attended):
            return True
        COMMITS.labels("lost_race").inc()
        log.info("commit.superseded", **joblog.ids(attempt.job), worker=self._worker, token=self._token)
        change.outcome = WriteOutcome.LOST
        return False
