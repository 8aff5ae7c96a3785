"""Reads and writes the records of jobs in flight, and says what is then done with each delivery.

The claim is written while the batch runs and the commit waits for it: the claim arbitrates the record, the lease the
device, so a lost claim only wastes a run. Only a job that ran alone is judged (:mod:`workers.serving.retries`).
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from signalbox.bus.writes import Group
from signalbox.jobs import times
from signalbox.jobs.changes import RecordChange, WriteOutcome
from signalbox.jobs.commits import Commits
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.records import Records
from signalbox.program import log, metrics
from signalbox.program.errors import Poisoned, SignalboxError
from signalbox.wire.messages import ErrorInfo, Record, State
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
CHECK_AGAIN_S: Final = 1.0
"""Until a job is examined again whose record could not be read, or shows a lease whose holder is not to be seen."""
_MESSAGE_BYTES: Final = 128
"""Of a stored record, beside its header's text and its body, roughly."""


class Done(NamedTuple):
    """The job's end is durable."""

    job: InFlightJob


class Drop(NamedTuple):
    """Another attempt has the job."""

    job: InFlightJob


class Retry(NamedTuple):
    """The job is examined again after ``delay_s``, here or wherever its model's queue is read anew."""

    job: InFlightJob
    delay_s: float = 0.0


Disposition = Done | Drop | Retry


class Claims:
    """The claims of one batch that runs. Close them, however the batch ends.

    delay_s: until they are written; a batch that is over by then is claimed with the writes of its ends.
    """

    def __init__(self, commits: Commits, jobs: Sequence[InFlightJob], delay_s: float) -> None:
        self._commits = commits
        self._jobs = jobs
        self._group = Group()
        self._writing: asyncio.Task[dict[InFlightJob, WriteOutcome]] | None = None
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._write)

    def _write(self) -> None:
        self._writing = asyncio.create_task(self._commits.claim(self._jobs, self._group), name="claims")

    async def outcomes(self) -> dict[InFlightJob, WriteOutcome]:
        """What has come of them when the run is over: those that are not on the disk yet are written with the end."""
        self._timer.cancel()
        if self._writing is None:
            return self._commits.claim_with_the_end(self._jobs)
        self._group.withdraw()
        return await self._writing

    async def close(self) -> None:
        """Stop the writing, if it is still under way."""
        self._timer.cancel()
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            await asyncio.wait([self._writing])


class Committer:
    """Reads and writes the records of one session's jobs. clock: UTC seconds."""

    def __init__(
        self,
        records: Records,
        commits: Commits,
        fleet: FleetTables,
        statistics: Statistics,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._records = records
        self._commits = commits
        self._fleet = fleet
        self._statistics = statistics
        self._clock = clock

    # ------------------------------------------------------------------------------ a batch

    async def expire(self, batch_run: BatchRun) -> list[Disposition]:
        """End the jobs of a batch whose deadline has passed, and take them out of it.

        The owner of a waiting job may have moved its deadline: then its record tells, and its message does not.
        """
        now = self._clock()
        suspects = [held for held in batch_run.jobs if held.deadline_at < now]
        if not suspects:
            return []
        await asyncio.gather(*(self._commits.learn_deadline(held) for held in suspects))
        late = {held for held in suspects if held.deadline_at < now}
        batch_run.jobs = [held for held in batch_run.jobs if held not in late]
        return await self._write([self._commits.expiry(held) for held in suspects if held in late], {})

    def claim(self, batch_run: BatchRun) -> Claims:
        """Claim the jobs of a batch that runs now, in a moment where its run may well be over by then."""
        run_s = self._statistics.run_s.get(batch_run.model)
        is_momentary = run_s is not None and run_s < MOMENT_S
        return Claims(self._commits, batch_run.jobs, 2 * MOMENT_S if is_momentary else 0.0)

    async def commit(self, batch_run: BatchRun, outcomes: Sequence[Outcome], claims: Claims) -> list[Disposition]:
        """Write what became of each job, all in one group. outcomes: one for each of the batch's jobs, in order."""
        written = await claims.outcomes()
        dispositions: list[Disposition] = []
        changes: list[RecordChange[InFlightJob]] = []
        delays: dict[InFlightJob, float] = {}
        for held, outcome in zip(batch_run.jobs, outcomes, strict=True):
            claimed = written[held]
            if claimed is not WriteOutcome.OURS and claimed is not WriteOutcome.UNWRITTEN:
                dispositions.append(_leave(held, claimed))
            elif isinstance(outcome, bytes):
                changes.append(await self._commits.success(held, outcome, batch=len(batch_run.jobs)))
            else:
                changes.append(await self._judge(held, outcome, delays))
        return dispositions + await self._write(changes, delays)

    async def _judge(
        self, held: InFlightJob, error: SignalboxError, delays: dict[InFlightJob, float]
    ) -> RecordChange[InFlightJob]:
        """What to write for a job whose run failed; one that goes back is noted in ``delays``."""
        if held.is_cancelled:
            return self._commits.cancellation(held)
        record = held.record
        strikes, failures = (record.strikes, record.failures) if record is not None else (0, 0)
        max_delivery = self._fleet.limits(held.job.model).max_delivery
        decision = judge(error, strikes=strikes, failures=failures, max_delivery=max_delivery)
        penalty = decision.penalty
        if penalty is Penalty.STRIKE:
            gauges.STRIKES.labels(held.job.model, error.code).inc()
        if decision.action is Action.RETRY:
            delays[held] = decision.delay_s
            gauges.RETRIED.labels(held.job.model, error.code).inc()
            return self._commits.requeue(held, error, penalty=penalty, delay_s=decision.delay_s)
        said = error
        if decision.is_poison:
            said = Poisoned(f"It was run {strikes + 1} times alone. {error.public_message}")
        why = ErrorInfo(code=said.code, message=said.public_message)
        if decision.is_dead_letter:
            await self._commits.dead_letter(held, held.delivery.data, why, penalty=penalty)
        if decision.is_poison:
            await self._fleet.quarantine.add(held.job, held.delivery.data, error)
        return self._commits.failure(held, why, penalty=penalty)

    async def _write(
        self, changes: list[RecordChange[InFlightJob]], delays: dict[InFlightJob, float]
    ) -> list[Disposition]:
        await self._commits.apply(changes)
        self._count(changes)
        return [
            Retry(change.attempt, delays[change.attempt])
            if change.attempt in delays and change.outcome is WriteOutcome.OURS
            else _leave(change.attempt, change.outcome)
            for change in changes
        ]

    def _count(self, changes: list[RecordChange[InFlightJob]]) -> None:
        """Count the ends that were written."""
        ended: Counter[tuple[str, str]] = Counter()
        stored: Counter[str] = Counter()
        waits_ms: defaultdict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        waited_s: defaultdict[str, list[float]] = defaultdict(list)
        lease_s: list[float] = []
        for change in changes:
            record = change.record
            if change.outcome is not WriteOutcome.OURS or record is None or not record.state.is_terminal:
                continue
            ended[record.model, record.state.value] += 1
            part = record.parts.get
            waited_s[record.model].append(times.waited_ms(record) / 1000)
            lease_s.append(part(times.LEASE, 0.0) / 1000)
            load_ms = part(times.VERIFY, 0.0) + part(times.LOAD, 0.0) + part(times.WARM, 0.0)
            waits_ms[record.model, record.version].append((part(times.FETCH, 0.0), load_ms))
            stored[record.account_id] += _MESSAGE_BYTES + len(change.text) + len(change.body)
            if record.ref is not None:
                self._statistics.large_results.add(record.account_id, record.ref.size)
        for account, size in stored.items():
            self._statistics.results.add(account, size)
        for model, seconds in waited_s.items():
            metrics.observe_many(gauges.WAIT_SECONDS.labels(model), seconds)
        metrics.observe_many(gauges.LEASE_SECONDS, lease_s)
        for key, waited in waits_ms.items():
            gauges.count_cached(*key, waited)
        for (model, state), number in ended.items():
            gauges.ENDED.labels(model, state).inc(number)
            self._statistics.done += number * (state == State.SUCCEEDED)
            self._statistics.failed += number * (state == State.FAILED)

    # ------------------------------------------------------------------------------ before a run

    async def examine(self, jobs: Sequence[InFlightJob]) -> list[Disposition | None]:
        """Decide about jobs that may have been delivered before, by their records; None: it may run."""
        try:
            known = await self._records.read_many([held.job.id for held in jobs])
            attended = await self._attended(record[0] for record in known.values() if record is not None)
        except SignalboxError as error:
            log.warning("session.examination_failed", jobs=len(jobs), why=str(error))
            return [Retry(held, CHECK_AGAIN_S) for held in jobs]
        found = [self._judge_earlier(held, known, attended) for held in jobs]
        cancelled = [h for h, disposition in zip(jobs, found, strict=True) if disposition is None and h.is_cancelled]
        ended = {disposition.job: disposition for disposition in await self._end_cancelled(cancelled)}
        return [ended.get(held, disposition) for held, disposition in zip(jobs, found, strict=True)]

    async def _attended(self, records: Iterable[Record]) -> set[tuple[str, int]]:
        """Which of the leases under which jobs are said to run are still there: each is read once."""
        leases = {(record.gpu, record.token): record for record in records if record.state is State.RUNNING}
        return {lease for lease, record in leases.items() if await self._commits.is_attended(record)}

    def _judge_earlier(
        self,
        held: InFlightJob,
        known: Mapping[str, tuple[Record, int] | None],
        attended: Container[tuple[str, int]],
    ) -> Disposition | None:
        """By what became of the job's earlier attempts."""
        if held.job.id not in known:
            held.record, held.revision = None, 0
            return None
        found = known[held.job.id]
        if found is None:
            gauges.NEWER.labels(held.job.model).inc()
            return Retry(held, NEWER_DELAY_S)
        record, revision = found
        if record.state.is_terminal:
            gauges.SKIPPED.labels(held.job.model).inc()
            return Done(held)
        if record.state is State.RUNNING and (record.gpu, record.token) in attended:
            # A worker that the fleet does not see is dead or has just begun: the lease's end, or its presence, tells.
            return Drop(held) if self._fleet.holds(record.gpu, record.token) else Retry(held, CHECK_AGAIN_S)
        if (wait_s := record.retry_at - self._clock()) > 0 and not record.cancel_requested:
            return Retry(held, wait_s)
        if record.state is State.RUNNING:
            gauges.VANISHED.labels(held.job.model).inc()
        self._commits.learn(held, record, revision)
        return None

    async def _end_cancelled(self, jobs: list[InFlightJob]) -> list[Disposition]:
        return await self._write([self._commits.cancellation(held) for held in jobs], {})

    async def cancel(self, held: InFlightJob) -> Disposition:
        """End a job, no run of which has begun, as its owner asked."""
        return (await self._end_cancelled([held]))[0]


def _leave(held: InFlightJob, written: WriteOutcome | None) -> Disposition:
    if written is WriteOutcome.LOST:
        gauges.SUPERSEDED.labels(held.job.model).inc()
        return Drop(held)
    return Done(held)
