"""Writes what becomes of the jobs of batches, and says what is then done with each delivery.

The claim is written while the batch runs and the commit waits for it: the claim arbitrates the record, the lease the
device, so a lost claim only wastes a run. Only a job that ran alone is judged (:mod:`workers.serving.retries`).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from signalbox.bus.writes import Group
from signalbox.jobs.changes import RecordChange, WriteOutcome
from signalbox.jobs.commits import Commits
from signalbox.program import log
from signalbox.program.errors import NewerVersion, Poisoned, SignalboxError
from signalbox.wire.messages import ErrorInfo, State
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.serving.batchrun import BatchRun, Outcome
from workers.serving.inflight import InFlightJob
from workers.serving.retries import Action, judge
from workers.statistics.worker import Statistics

MOMENT_S: Final = 0.005
"""A run below this is over before its claim could be on the disk."""
NEWER_DELAY_S: Final = 2.0
"""Until a job that only a newer worker understands is offered again."""
LOOK_AGAIN_S: Final = 1.0
"""Until a job whose record could not be read is offered again."""
_MESSAGE_BYTES: Final = 128
"""Of a stored record, beside its header's text and its body, roughly."""


class Done(NamedTuple):
    """The job's end is durable: its delivery is acknowledged."""

    job: InFlightJob


class Drop(NamedTuple):
    """Another attempt has the job: its delivery is that one's to acknowledge."""

    job: InFlightJob


class Retry(NamedTuple):
    """The job is delivered again after ``delay_s``, to this worker or another."""

    job: InFlightJob
    delay_s: float = 0.0


Disposition = Done | Drop | Retry


class Claims:
    """The claims of one batch, being written. Close them, however the batch ends."""

    def __init__(self, group: Group, writing: "asyncio.Task[dict[InFlightJob, WriteOutcome]]") -> None:
        self.group = group
        self.writing = writing

    async def close(self) -> None:
        """Stop the writing, if it is still under way."""
        if not self.writing.done():
            self.writing.cancel()
            await asyncio.wait([self.writing])


class Committer:
    """Writes the records of one session's jobs. clock: UTC seconds."""

    def __init__(
        self, commits: Commits, fleet: FleetTables, statistics: Statistics, *, clock: Callable[[], float]
    ) -> None:
        self._commits = commits
        self._fleet = fleet
        self._statistics = statistics
        self._clock = clock

    # ------------------------------------------------------------------------------ a batch

    async def expire(self, batch_run: BatchRun) -> list[Disposition]:
        """End the jobs of a batch whose deadline has passed, and take them out of it."""
        now = self._clock()
        late = [held for held in batch_run.jobs if held.job.deadline_at < now]
        if not late:
            return []
        batch_run.jobs = [held for held in batch_run.jobs if held.job.deadline_at >= now]
        return await self._write([self._commits.expiry(held) for held in late], {})

    def claim(self, batch_run: BatchRun) -> Claims:
        """Begin to claim the jobs of a batch that runs now."""
        group = Group()
        return Claims(group, asyncio.create_task(self._claim(batch_run, group), name="claims"))

    async def commit(self, batch_run: BatchRun, outcomes: Sequence[Outcome], claims: Claims) -> list[Disposition]:
        """Write what became of each job, all in one group. outcomes: one for each of the batch's jobs, in order."""
        claims.group.withdraw()  # claims that are not on the disk yet are written with the end
        written = await claims.writing
        dispositions: list[Disposition] = []
        changes: list[RecordChange[InFlightJob]] = []
        delays: dict[InFlightJob, float] = {}
        for held, outcome in zip(batch_run.jobs, outcomes, strict=True):
            claimed = written[held]
            if claimed not in {WriteOutcome.OURS, WriteOutcome.UNWRITTEN}:
                dispositions.append(_leave(held, claimed))
            elif isinstance(outcome, bytes):
                changes.append(await self._commits.success(held, outcome, batch=len(batch_run.jobs)))
            else:
                changes.append(await self._judge(held, outcome, delays))
        return dispositions + await self._write(changes, delays)

    async def _claim(self, batch_run: BatchRun, group: Group) -> dict[InFlightJob, WriteOutcome]:
        """Claim while the batch runs; if the run ends in a moment, the write of the end makes the claim, too."""
        run_s = self._statistics.run_s(batch_run.model)
        if run_s is not None and run_s < MOMENT_S:
            try:
                async with asyncio.timeout(2 * MOMENT_S):
                    await batch_run.over.wait()
            except TimeoutError:
                return await self._commits.claim(batch_run.jobs, group)
            return self._commits.claim_with_the_end(batch_run.jobs)
        return await self._commits.claim(batch_run.jobs, group)

    async def _judge(
        self, held: InFlightJob, error: SignalboxError, delays: dict[InFlightJob, float]
    ) -> RecordChange[InFlightJob]:
        """What to write for a job whose run failed; one that goes back is noted in ``delays``."""
        if held.is_cancelled:
            return self._commits.cancellation(held)
        crashes = held.record.crashes if held.record is not None else 0
        decision = judge(error, crashes=crashes, max_delivery=self._fleet.limits(held.job.model).max_delivery)
        if decision.is_strike:
            gauges.STRIKES.labels(held.job.model, error.code).inc()
        if decision.action is Action.RETRY:
            delays[held] = decision.delay_s
            gauges.RETRIED.labels(held.job.model, error.code).inc()
            return self._commits.requeue(held, error, is_crash=decision.is_strike)
        said = error
        if decision.is_poison:
            said = Poisoned(f"It was run {crashes + 1} times alone. {error.public_message}")
        why = ErrorInfo(code=said.code, message=said.public_message)
        if decision.is_dead_letter:
            await self._commits.dead_letter(held, held.delivery.data, why, is_crash=decision.is_strike)
        if decision.is_poison:
            await self._fleet.quarantine.add(held.job, held.delivery.data, error)
        return self._commits.failure(held, why)

    async def _write(
        self, changes: list[RecordChange[InFlightJob]], delays: dict[InFlightJob, float]
    ) -> list[Disposition]:
        await self._commits.apply(changes)
        dispositions: list[Disposition] = []
        for change in changes:
            held = change.attempt
            if held in delays and change.outcome is WriteOutcome.OURS:
                dispositions.append(Retry(held, delays[held]))
            else:
                self._count(change)
                dispositions.append(_leave(held, change.outcome))
        return dispositions

    def _count(self, change: RecordChange[InFlightJob]) -> None:
        record = change.record
        if change.outcome is not WriteOutcome.OURS or record is None:
            return
        if record.state is State.SUCCEEDED:
            self._statistics.done += 1
        elif record.state is State.FAILED:
            self._statistics.failed += 1
        if record.state.is_terminal:
            gauges.ENDED.labels(record.model, record.state.value).inc()
            size = _MESSAGE_BYTES + len(change.text) + len(change.body)
            self._statistics.results.add(record.key_id, size)
            if record.ref is not None:
                self._statistics.large_results.add(record.key_id, record.ref.size)

    # ------------------------------------------------------------------------------ one job

    async def examine(self, held: InFlightJob) -> Disposition | None:
        """Decide about a redelivered job by what became of its earlier attempts; None: it may run."""
        try:
            if not await self._commits.refresh(held):
                return Drop(held)
            if held.record is not None and held.record.state is State.RUNNING:
                gauges.VANISHED.labels(held.job.model).inc()
            if held.is_cancelled:
                change = self._commits.cancellation(held)
                await self._commits.apply([change])
                if change.outcome is WriteOutcome.LOST:
                    return Drop(held)
        except NewerVersion:
            gauges.NEWER.labels(held.job.model).inc()
            return Retry(held, NEWER_DELAY_S)
        except SignalboxError as error:
            log.warning("session.redelivery_check_failed", job=held.job.id, why=str(error))
            return Retry(held, LOOK_AGAIN_S)
        if held.record is not None and held.record.state.is_terminal:
            gauges.SKIPPED.labels(held.job.model).inc()
            return Done(held)
        return None

    async def cancel(self, held: InFlightJob) -> Disposition:
        """End a job, no run of which has begun, as its owner asked."""
        change = self._commits.cancellation(held)
        await self._commits.apply([change])
        return Drop(held) if change.outcome is WriteOutcome.LOST else Done(held)


def _leave(held: InFlightJob, written: WriteOutcome | None) -> Disposition:
    if written is WriteOutcome.LOST:
        gauges.SUPERSEDED.labels(held.job.model).inc()
        return Drop(held)
    return Done(held)
