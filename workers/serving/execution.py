"""Runs batches: load the version, claim, run, commit, acknowledge.

The claim is written while the batch runs and the commit waits for it: the claim arbitrates the
record, the lease the device, so a lost claim only wastes a run. A batch that fails as a whole is
run again in parts, so that one bad input costs its neighbours nothing but time: in halves where it
used the memory up, each job alone where it took the runner down (a restart is dearer than a run). One
input that the model refuses is found by halves in the runner itself. Only a job that ran alone is
judged (:mod:`workers.serving.retries`).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from signalbox.bus.client import Bus
from signalbox.bus.writes import Group
from signalbox.jobs import joblog
from signalbox.jobs.changes import Change, WriteOutcome
from signalbox.jobs.commits import Commits, persist
from signalbox.jobs.payloads import fetch
from signalbox.program.errors import (
    Bug,
    DeadlineExceeded,
    InputLost,
    InvalidRequest,
    LeaseLost,
    ModelError,
    NotFound,
    NotServing,
    OutOfMemory,
    Poisoned,
    RunnerCrashed,
    SignalboxError,
    Unavailable,
)
from signalbox.wire.messages import ErrorInfo, Limits, Record, State
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.runner.link import RunnerLink
from workers.runner.wire import RunnerLost
from workers.serving import batchlimits
from workers.serving.activity import Activity, Request
from workers.serving.inflight import InFlightJob
from workers.serving.lru import Lru
from workers.serving.modelcache import DoesNotFit
from workers.serving.residency import ResidentVersions
from workers.serving.results import MAX_RESULT_BYTES, within
from workers.serving.retries import Action, judge
from workers.serving.statistics import Statistics

QUICK_RUN_S: Final = 0.1
"""Below this the runner is given a second batch before it has finished the first."""
MOMENT_S: Final = 0.005
"""A run below this is over before its claim could be on the disk."""
MAX_TRIES: Final = 5
"""Times a batch is run again because its version was not loaded after all, or another one took the runner down."""
_MOST_DEADLY: Final = 4096
_MESSAGE_BYTES: Final = 128
"""Of a stored record, beside its header's text and its body, roughly."""

Outcome = bytes | SignalboxError


class BatchRun:
    """One batch from its start to its end. over: set when its run has ended, however. part: the jobs that run now.

    generation: of the runner that it runs in; the death of another one is not its fault. request: the last one for a
    run.
    """

    __slots__ = ("batch_key", "generation", "has_slot", "jobs", "model", "over", "part", "request", "tries", "version")

    def __init__(self, jobs: list[InFlightJob]) -> None:
        self.jobs = jobs
        self.model = jobs[0].job.model
        self.version = jobs[0].job.version
        self.batch_key = jobs[0].job.batch_key
        self.over = asyncio.Event()
        self.part: Sequence[InFlightJob] = ()
        self.generation = 0
        self.tries = 0
        self.has_slot = True
        self.request: Request | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Model and version."""
        return (self.model, self.version)

    @property
    def limit_key(self) -> batchlimits.Key:
        """The key of its batch limit."""
        return (self.model, self.version, self.batch_key)

    @property
    def was_beside_load(self) -> bool:
        """Whether the load of a version was under way during its last run."""
        return self.request is not None and self.request.is_beside_load


class Execution:
    """Runs the batches of one session.

    ack: called for each job whose end is durable, drop for each that another attempt has, nak for each that shall be
    tried again after so many seconds. free: called when a slot becomes free. clock: UTC seconds.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        runner: RunnerLink,
        residency: ResidentVersions,
        commits: Commits,
        fleet: FleetTables,
        statistics: Statistics,
        activity: Activity,
        ack: Callable[[InFlightJob], None],
        drop: Callable[[InFlightJob], None],
        nak: Callable[[InFlightJob, float], None],
        free: Callable[[], None],
        clock: Callable[[], float] = time.time,
        max_result_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        self._max_result_bytes = max_result_bytes
        self._bus = bus
        self._runner = runner
        self._residency = residency
        self._commits = commits
        self._fleet = fleet
        self._statistics = statistics
        self._activity = activity
        self._ack = ack
        self._drop = drop
        self._nak = nak
        self._free = free
        self._clock = clock
        self._batch_runs: list[BatchRun] = []
        self._generation = 0
        self._ended_by_us = -1
        self._deadly: Lru[tuple[str, int], None] = Lru(_MOST_DEADLY)
        """Versions under whose loading a runner has died in this session."""
        self._one_revival = asyncio.Lock()

    @property
    def has_slot(self) -> bool:
        """Whether another batch may be given to the runner now."""
        if not self._batch_runs:
            return True
        if len(self._batch_runs) > 1:
            return False
        run_s = self._statistics.run_s(self._batch_runs[0].model)
        return run_s is not None and run_s < QUICK_RUN_S

    def is_running(self, model: str) -> bool:
        """Whether a batch of the model is with the runner."""
        return any(batch_run.model == model for batch_run in self._batch_runs)

    def begin(self, jobs: list[InFlightJob]) -> BatchRun:
        """Take a slot for a batch."""
        batch_run = BatchRun(jobs)
        self._batch_runs.append(batch_run)
        return batch_run

    def end(self, batch_run: BatchRun) -> None:
        """Give the slot back. Idempotent; the batch may still be committing."""
        if batch_run.has_slot:
            batch_run.has_slot = False
            self._activity.trust(batch_run)
            self._batch_runs.remove(batch_run)
            batch_run.over.set()
            self._free()

    async def run_batch(self, batch_run: BatchRun) -> None:
        """Run a batch to its end: every job of it has ended, is nak'ed or has another attempt."""
        await self._expire(batch_run)
        if not batch_run.jobs:
            return
        group = Group()
        claims = asyncio.create_task(self._claim(batch_run, group), name="claims")
        try:
            outcomes = await self._outcomes(batch_run)
            self.end(batch_run)
            group.withdraw()  # claims that are not on the disk yet are written with the end
            written = await claims
        finally:
            if not claims.done():
                claims.cancel()
                await asyncio.wait([claims])
        ours: list[tuple[InFlightJob, Outcome]] = []
        for held, outcome in zip(batch_run.jobs, outcomes, strict=True):
            if written[held] in {WriteOutcome.OURS, WriteOutcome.UNWRITTEN}:
                ours.append((held, outcome))
            else:
                self._leave(held, written[held])
        await self._conclude(ours, batch=len(batch_run.jobs))

    async def _claim(self, batch_run: BatchRun, group: Group) -> dict[InFlightJob, WriteOutcome]:
        """Claim while the batch runs; if the run ends in a moment, the write of the end makes the claim, too."""
        jobs = batch_run.jobs
        run_s = self._statistics.run_s(batch_run.model)
        if run_s is not None and run_s < MOMENT_S:
            try:
                async with asyncio.timeout(2 * MOMENT_S):
                    await batch_run.over.wait()
            except TimeoutError:
                return await self._commits.claim(jobs, group)
            return self._commits.claim_with_the_end(jobs)
        return await self._commits.claim(jobs, group)

    async def cancel(self, held: InFlightJob, record: Record, revision: int, *, grace_s: float) -> None:
        """Stop an in-flight job whose record asks for it: let its run end, or end the runner.

        The job's end is written from ``revision``, so that its owner's cancel request is never overwritten.
        """
        held.is_cancelled = True
        if held.record is not None:  # else the claim is in flight and its commit finds out
            held.record, held.revision = record, revision
        batch_run = next((f for f in self._batch_runs if held in f.jobs), None)
        if batch_run is None:
            return
        over = asyncio.create_task(batch_run.over.wait(), name="run over")
        await asyncio.wait([over], timeout=grace_s)
        over.cancel()
        if not batch_run.over.is_set() and held in batch_run.part:
            self._ended_by_us = self._generation
            self._runner.kill()

    # ------------------------------------------------------------------------------ running

    async def _expire(self, batch_run: BatchRun) -> None:
        now = self._clock()
        late = [held for held in batch_run.jobs if held.job.deadline_at < now]
        if late:
            batch_run.jobs = [held for held in batch_run.jobs if held.job.deadline_at >= now]
            changes = [self._commits.expiry(held) for held in late]
            await self._commits.apply(changes)
            for change in changes:
                self._leave(change.attempt, change.outcome)

    async def _outcomes(self, batch_run: BatchRun) -> list[Outcome]:
        """Run the batch's jobs until each has an outcome. Raises :class:`LeaseLost`; other errors are outcomes."""
        found: dict[InFlightJob, Outcome] = {}
        parts = [batch_run.jobs]
        while parts:
            part = await self._fit_to_run(parts.pop(0), found)
            if not part:
                continue
            if len(part) > 1 and self._is_above_limit(batch_run, part):
                parts = _halves(part) + parts
                continue
            batch_run.part = part
            try:
                again = await self._attempt(batch_run, part, found)
            finally:
                batch_run.part = ()
            _not_begun(again)
            parts = again + parts
        return [found[held] for held in batch_run.jobs]

    def _is_above_limit(self, batch_run: BatchRun, part: list[InFlightJob]) -> bool:
        """Whether a part has more rows than the batch limit, which was lowered after the part was formed."""
        most = self._statistics.batch_limits.rows(batch_run.limit_key)
        return bool(most) and _rows(part) > most

    async def _fit_to_run(self, jobs: list[InFlightJob], found: dict[InFlightJob, Outcome]) -> list[InFlightJob]:
        """Select the jobs that may run; note the others' outcomes in ``found``: cancelled, or in quarantine."""
        quarantine = self._fleet.quarantine
        fit: list[InFlightJob] = []
        for held in jobs:
            if held.is_cancelled:
                found[held] = Unavailable("Cancelled before it ran.")
            elif quarantine.concerns(held.job.model) and await quarantine.holds(held.job, held.delivery.data):
                found[held] = Poisoned()
                gauges.QUARANTINED.labels(held.job.model).inc()
            else:
                fit.append(held)
        return fit

    async def _attempt(
        self, batch_run: BatchRun, part: list[InFlightJob], found: dict[InFlightJob, Outcome]
    ) -> list[list[InFlightJob]]:
        """Run one part. Notes what is decided in ``found``, returns the parts that must run again."""
        await self._apart(batch_run, part)
        await self.admitted()
        batch_run.generation = self._generation
        batch_run.request = None
        try:
            outcomes = await self._run(batch_run, part)
        except LeaseLost:
            raise
        except NotFound as error:  # not loaded after all: the next try loads it
            batch_run.tries += 1
            if batch_run.tries < MAX_TRIES:
                return [part]
            found |= dict.fromkeys(part, Bug(str(error)))
        except (RunnerCrashed, DeadlineExceeded) as error:
            is_ours = self._is_to_blame(batch_run, error)
            again = self._after_death(batch_run, part, error, found, is_ours=is_ours)
            _not_begun(again)
            await self._revive(batch_run.generation)
            return again
        except DoesNotFit as error:
            found |= dict.fromkeys(part, error)
        except OutOfMemory as error:
            return self._after_full(batch_run, part, error, found)
        except (ModelError, InvalidRequest, InputLost) as error:
            if len(part) > 1:  # every job, or the runner would have named those it refused
                return _singles(part)
            found[part[0]] = error
        except SignalboxError as error:
            found |= dict.fromkeys(part, error)
        else:
            found |= zip(part, outcomes, strict=True)
            self._statistics.batch_limits.fitted(batch_run.limit_key, _rows(part))
        return []

    def _note_too_many(self, batch_run: BatchRun, rows: int) -> None:
        """Note that so many rows used the memory up."""
        known = self._statistics.batch_limits
        known.failed(batch_run.limit_key, rows)
        if most := known.rows(batch_run.limit_key):
            gauges.CEILING.labels(batch_run.model).set(most)

    async def _apart(self, batch_run: BatchRun, part: list[InFlightJob]) -> None:
        """Wait until no load ahead runs beside a part that may kill the runner, so that the load is not blamed."""
        if any(held.record is not None and held.record.crashes for held in part):
            self._activity.suspect(batch_run)
        await self._activity.alone(batch_run)

    def _after_full(
        self, batch_run: BatchRun, part: list[InFlightJob], error: OutOfMemory, found: dict[InFlightJob, Outcome]
    ) -> list[list[InFlightJob]]:
        """``part`` used the memory up: a lone culprit is judged, unless a load may have taken some of it."""
        if not batch_run.was_beside_load:
            self._note_too_many(batch_run, _rows(part))
        if len(part) > 1:
            return _halves(part)
        if batch_run.was_beside_load:
            return self._run_again(batch_run, part, found, "A version was loaded beside the job.")
        found[part[0]] = error
        return []

    def _is_to_blame(self, batch_run: BatchRun, error: SignalboxError) -> bool:
        """Whether this request ended the runner.

        It did not where another did, or this worker has, or where a load beside it may have taken the time.
        """
        if isinstance(error, DeadlineExceeded) and batch_run.was_beside_load:
            return False
        return not isinstance(error, RunnerLost) and batch_run.generation != self._ended_by_us

    def _after_death(
        self,
        batch_run: BatchRun,
        part: list[InFlightJob],
        error: SignalboxError,
        found: dict[InFlightJob, Outcome],
        *,
        is_ours: bool,
    ) -> list[list[InFlightJob]]:
        """The runner died under ``part``: a lone culprit is judged, suspects run alone, others as before."""
        if not is_ours:
            return self._run_again(batch_run, part, found, "Others kept taking the runner down.")
        if len(part) == 1:
            found[part[0]] = error
            return []
        self._activity.suspect(batch_run)
        for held in part:
            held.is_alone = True
        return _singles(part)

    def _run_again(
        self, batch_run: BatchRun, part: list[InFlightJob], found: dict[InFlightJob, Outcome], why_not: str
    ) -> list[list[InFlightJob]]:
        """Let ``part`` run again without blame and with no load beside it, a few times; then its jobs are nak'ed."""
        batch_run.tries += 1
        self._activity.suspect(batch_run)
        if batch_run.tries < MAX_TRIES:
            return [part]
        found |= dict.fromkeys(part, Unavailable(why_not))
        return []

    async def _run(self, batch_run: BatchRun, jobs: list[InFlightJob]) -> list[Outcome]:
        key = batch_run.key
        first = jobs[0].job
        if not self._residency.is_ready(key):
            self._mark(jobs, "loading")
        await self._make_ready(batch_run)
        try:
            frames = [held.delivery.data if held.job.ref is None else await self._fetch(held) for held in jobs]
            ids = tuple(held.job.id for held in jobs)
            with self._activity.computing(key, ids, lambda: self._mark(jobs, "started")) as request:
                batch_run.request = request
                report = await self._runner.run(
                    batch_run.model,
                    batch_run.version,
                    first.signature,
                    frames,
                    first.outputs,
                    timeout_s=self._limits(batch_run.model).timeout_s,
                )
        except NotFound:
            self._residency.lost(key)
            raise
        finally:
            self._residency.unpin(key)
        seconds = request.lasted_s(report.seconds)
        self._mark_computed(jobs, seconds)
        gauges.BATCH_JOBS.labels(batch_run.model).observe(len(jobs))
        gauges.RUN_SECONDS.labels(batch_run.model).observe(seconds)
        self._statistics.ran(batch_run.model, jobs=len(jobs), seconds=seconds, size_bytes=sum(map(len, frames)))
        return [
            report.errors.get(at) or within(frame, self._max_result_bytes) for at, frame in enumerate(report.frames)
        ]

    async def _make_ready(self, batch_run: BatchRun) -> None:
        """Load the version where it is not resident. A load that ends the runner is the version's fault, not the jobs'.

        The first time the kernel or an operator may have ended it: the version is loaded once more.
        """
        try:
            await self._residency.pin(batch_run.key, lambda: self._renew(batch_run))
        except RunnerCrashed as error:
            if not self._is_to_blame(batch_run, error):
                raise
            if batch_run.key not in self._deadly:
                self._deadly[batch_run.key] = None
                raise RunnerLost("The runner died while it loaded the version.") from error
            await self._revive(batch_run.generation)
            message = (
                f"Version {batch_run.version} of model {batch_run.model} took the runner down while it was loaded."
            )
            raise NotServing(message) from error
        self._deadly.discard(batch_run.key)

    async def _fetch(self, held: InFlightJob) -> bytes:
        ref = held.job.ref
        assert ref is not None, "asked only for jobs with a reference"
        try:
            return await persist(lambda: fetch(self._bus, ref))
        except NotFound as error:
            raise InputLost from error

    async def admitted(self) -> None:
        """Wait for a runner inside the device, where one is being replaced. Raises :class:`LeaseLost`."""
        if not self._runner.entered.is_set():
            self._residency.forget()
            await self._runner.entered.wait()  # bounded by the lease: its loss wakes all tasks that wait
            if not self._runner.token:
                raise LeaseLost("The lease was lost while the runner was replaced.")

    async def _renew(self, batch_run: BatchRun) -> None:
        """Make the device empty for a load of ``batch_run``; what runs beside it runs again, without blame."""
        self._ended_by_us = self._generation
        await self._revive(self._generation)
        batch_run.generation = self._generation

    async def recover(self) -> None:
        """Wait for the next runner after one died outside a run. Raises :class:`LeaseLost`."""
        await self._revive(self._generation)

    async def _revive(self, generation: int) -> None:
        """Restart the runner after its death, once for all tasks that met the same death."""
        async with self._one_revival:
            if generation == self._generation:
                self._residency.forget()
                await self._runner.restart()
                self._generation += 1

    def _limits(self, model: str) -> Limits:
        found = self._fleet.find(model)
        return found.limits if found is not None else Limits()

    def _mark(self, jobs: Sequence[InFlightJob], phase: str) -> None:
        """Note the time of a phase; the last one counts, which is that of the try whose outcome is kept."""
        now = self._clock()
        for held in jobs:
            held.phases[phase] = held.ms(now)
        joblog.steps(f"job.{phase}", (held.job for held in jobs))

    def _mark_computed(self, jobs: Sequence[InFlightJob], seconds: float) -> None:
        """Note that a run of so many seconds has ended now."""
        now = self._clock()
        self._mark(jobs, "computed")
        for held in jobs:
            began_ms = held.ms(now - seconds)
            held.phases["started"] = min(held.phases.get("started", began_ms), began_ms)

    # ------------------------------------------------------------------------------ ending

    async def _conclude(self, ended: list[tuple[InFlightJob, Outcome]], *, batch: int) -> None:
        """Write what became of each job, all in one group, then ack or nak."""
        changes: list[Change[InFlightJob]] = []
        delays: dict[InFlightJob, float] = {}
        for held, outcome in ended:
            if isinstance(outcome, bytes):
                changes.append(await self._commits.success(held, outcome, batch=batch))
            else:
                changes.append(await self._judge(held, outcome, delays))
        await self._commits.apply(changes)
        for change in changes:
            held = change.attempt
            if held in delays and change.outcome is WriteOutcome.OURS:
                self._nak(held, delays[held])
            else:
                self._count(change)
                self._leave(held, change.outcome)

    async def _judge(
        self, held: InFlightJob, error: SignalboxError, delays: dict[InFlightJob, float]
    ) -> Change[InFlightJob]:
        """What to write for a job whose run failed; one that goes back is noted in ``delays``."""
        if held.is_cancelled:
            return self._commits.cancellation(held)
        crashes = held.record.crashes if held.record is not None else 0
        limit = self._limits(held.job.model).max_delivery
        decision = judge(error, crashes=crashes, max_delivery=limit)
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

    def _leave(self, held: InFlightJob, written: WriteOutcome | None) -> None:
        """Ack a job whose end is durable; drop one that another attempt has, whose holder acknowledges it."""
        if written is WriteOutcome.LOST:
            gauges.SUPERSEDED.labels(held.job.model).inc()
            self._drop(held)
        else:
            self._ack(held)

    def _count(self, change: Change[InFlightJob]) -> None:
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


def _rows(part: Sequence[InFlightJob]) -> int:
    return sum(held.job.rows for held in part)


def _not_begun(parts: list[list[InFlightJob]]) -> None:
    """Mark jobs that run again as waiting."""
    for part in parts:
        for held in part:
            held.phases.pop("started", None)


def _singles(part: list[InFlightJob]) -> list[list[InFlightJob]]:
    return [[held] for held in part]


def _halves(part: list[InFlightJob]) -> list[list[InFlightJob]]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]]
