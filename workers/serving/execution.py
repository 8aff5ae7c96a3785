"""Runs batches: load the version, run, and find each job's outcome. It writes no record and answers no delivery.

A batch that fails as a whole is run again in parts, so that one bad input costs its neighbours nothing but time; what
caused it is decided in :mod:`workers.serving.cause`. One input that the model refuses is found by halves in the runner
itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from signalbox.bus.client import Bus
from signalbox.jobs import joblog
from signalbox.jobs.commits import persist
from signalbox.jobs.payloads import fetch
from signalbox.jobs.times import BATCH, BEFORE_READY, COMMIT, INPUT, LOAD, OTHER_MODEL, RUN, RUNNER, split_stages
from signalbox.program import log
from signalbox.program.errors import (
    InputLost,
    LeaseLost,
    NotFound,
    NotServing,
    Poisoned,
    RunnerCrashed,
    SignalboxError,
    Unavailable,
)
from signalbox.wire.modeldocs import Limits
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.residency.activity import Activity
from workers.residency.cache import Key
from workers.residency.versions import ResidentVersions
from workers.runner.link import RunnerLink
from workers.serving import cause
from workers.serving.batchrun import BatchRun, Outcome, halves, rows_of
from workers.serving.cause import Again
from workers.serving.inflight import InFlightJob
from workers.serving.results import MAX_RESULT_BYTES, within
from workers.serving.revival import Revival
from workers.serving.shadows import Shadows
from workers.statistics.lru import Lru
from workers.statistics.worker import Statistics

_MOST_FATAL: Final = 4096
_EVENTS: Final = {LOAD: "job.loading", INPUT: "job.fetching", RUN: "job.started", COMMIT: "job.computed"}
"""Log events of stages that begin."""


class Executor:
    """Runs the batches of one session. clock: UTC seconds."""

    def __init__(
        self,
        *,
        bus: Bus,
        runner: RunnerLink,
        residency: ResidentVersions,
        fleet: FleetTables,
        statistics: Statistics,
        activity: Activity,
        clock: Callable[[], float],
        max_result_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        self._max_result_bytes = max_result_bytes
        self._bus = bus
        self._runner = runner
        self._residency = residency
        self._fleet = fleet
        self._statistics = statistics
        self._activity = activity
        self._clock = clock
        self.revival = Revival(runner, residency)
        self.shadows = Shadows(
            runner=runner,
            residency=residency,
            revival=self.revival,
            fleet=fleet,
            activity=activity,
            statistics=statistics,
        )
        self._fatal_loads: Lru[tuple[str, int], None] = Lru(_MOST_FATAL)
        """Versions under whose loading a runner has died in this session."""

    async def run(self, batch_run: BatchRun) -> list[Outcome]:
        """Run the batch's jobs until each has an outcome, in their order.

        Raises :class:`LeaseLost`; other errors are outcomes.
        """
        found: dict[InFlightJob, Outcome] = {}
        parts = [batch_run.jobs]
        try:
            while parts:
                part = await self._fit_to_run(parts.pop(0), found)
                if len(part) > 1 and self._is_above_limit(batch_run, part):
                    parts = halves(part) + parts
                elif part:
                    batch_run.part = part
                    parts = await self._attempt(batch_run, part, found) + parts
        finally:
            batch_run.part = ()
            self._activity.trust(batch_run)
        return [found[held] for held in batch_run.jobs]

    async def load(self, key: Key, begins: Callable[[], None]) -> None:
        """Load a version that jobs wait for, beside runs. begins: called when its turn has come.

        Raises what those jobs end with, or :class:`LeaseLost`.
        """
        if not self._residency.is_loading_another(key[0]):
            begins()
        await self._make_ready(key, begins)
        self._residency.unpin(key)

    async def stop(self, batch_run: BatchRun, held: InFlightJob, *, grace_s: float) -> None:
        """Stop a job whose cancellation was requested: let its run end, or end the runner."""
        over = asyncio.create_task(batch_run.over.wait(), name="run over")
        await asyncio.wait([over], timeout=grace_s)
        over.cancel()
        if not batch_run.over.is_set() and held in batch_run.part:
            self.revival.kill()

    async def admitted(self) -> None:
        """Wait for a runner inside the device, where one is being replaced. Raises :class:`LeaseLost`."""
        await self.revival.admitted()

    async def recover(self) -> None:
        """Wait for the next runner after one died outside a run. Raises :class:`LeaseLost`."""
        await self.revival.after(self.revival.generation)

    # ------------------------------------------------------------------------------ one part

    def _is_above_limit(self, batch_run: BatchRun, part: list[InFlightJob]) -> bool:
        """Whether a part has more rows than the batch limit, which was lowered after the part was formed."""
        most = self._statistics.batch_limits.rows(batch_run.limit_key)
        return bool(most) and rows_of(part) > most

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
        if not self._runner.entered.is_set():
            self._mark(part, RUNNER)
            await self.revival.admitted()
        batch_run.request = None
        try:
            if batch_run.failure is not None:
                raise batch_run.failure
            outcomes = await self._run(batch_run, part)
        except LeaseLost:
            raise
        except SignalboxError as error:
            return await self._after(batch_run, part, error, found)
        found.update(zip(part, outcomes, strict=True))
        return []

    async def _apart(self, batch_run: BatchRun, part: list[InFlightJob]) -> None:
        """Wait until no load goes on beside a part that may kill the runner, so that none counts as failed."""
        for held in part:
            if held.record is not None and held.record.strikes:
                self._activity.suspect(batch_run)
        if self._activity.has_suspect:
            self._mark(part, OTHER_MODEL)
            await self._activity.alone(batch_run)
            self._mark(part, BATCH)

    async def _after(
        self, batch_run: BatchRun, part: list[InFlightJob], error: SignalboxError, found: dict[InFlightJob, Outcome]
    ) -> list[list[InFlightJob]]:
        """Carry out what is decided about a part that failed as a whole; returns the parts that run again."""
        decision = cause.decide(error, self._evidence(batch_run, len(part)))
        batch_run.tries += decision.is_try
        if decision.is_too_many:
            self._note_too_many(batch_run, rows_of(part))
        if decision.is_suspect:
            self._activity.suspect(batch_run)
        if decision.outcome is not None:
            found |= dict.fromkeys(part, decision.outcome)
            again = []
        else:
            again = _parts(part, decision.again)
        if decision.is_dead:
            self._mark(part, RUNNER)
            await self.revival.after(batch_run.generation)
        self._mark(part, BATCH if again else COMMIT)
        return again

    def _evidence(self, batch_run: BatchRun, jobs: int) -> cause.Evidence:
        return cause.Evidence(
            jobs=jobs,
            is_beside_load=batch_run.was_beside_load,
            is_ended_by_us=self.revival.is_ended_by_us(batch_run.generation),
            tries=batch_run.tries,
        )

    def _note_too_many(self, batch_run: BatchRun, rows: int) -> None:
        """Note that so many rows used the memory up."""
        known = self._statistics.batch_limits
        known.failed(batch_run.limit_key, rows)
        gauges.show_ceiling(batch_run.model, known.lowest())

    # ------------------------------------------------------------------------------ one run

    async def _run(self, batch_run: BatchRun, jobs: list[InFlightJob]) -> list[Outcome]:
        key = batch_run.key
        first = jobs[0].job
        model = self._fleet.find(batch_run.model)
        if not self._residency.take(key):  # it has left since, with its runner or for another one
            self._mark(jobs, OTHER_MODEL if self._residency.is_loading_another(batch_run.model) else LOAD)
            await self._make_ready(key, partial(self._mark, jobs, LOAD))
            spans, now = self._residency.load_spans(key), self._clock()
            for held in jobs:
                held.stages = split_stages(held.stages, BEFORE_READY, spans, now)
            self._mark(jobs, BATCH)
        batch_run.generation = self.revival.generation
        try:
            is_apart = any(held.job.ref is not None for held in jobs)
            if is_apart:
                self._mark(jobs, INPUT)
            frames = [held.delivery.data if held.job.ref is None else await self._fetch(held) for held in jobs]
            if is_apart:
                self._mark(jobs, BATCH)
            ids = tuple([held.job.id for held in jobs])
            with self._activity.computing(key, ids, partial(self._mark, jobs, RUN)) as request:
                batch_run.request = request
                report = await self._runner.run(
                    batch_run.model,
                    batch_run.version,
                    first.signature,
                    frames,
                    first.outputs,
                    timeout_s=(model.limits if model is not None else Limits()).timeout_s,
                )
        except NotFound:
            self._residency.lost(key)
            raise
        finally:
            self._residency.unpin(key)
        seconds = request.lasted_s(report.seconds)
        self._mark(jobs, COMMIT, began_ago_s=seconds)
        gauges.BATCH_JOBS.labels(batch_run.model).observe(len(jobs))
        gauges.RUN_SECONDS.labels(batch_run.model).observe(seconds)
        self._statistics.ran(batch_run.model, jobs=len(jobs), seconds=seconds, size_bytes=sum(map(len, frames)))
        self._statistics.batch_limits.fitted(batch_run.limit_key, rows_of(jobs))
        if model is not None and model.splits:
            batch_run.sample = self.shadows.sample(model, jobs, frames, report, seconds) or batch_run.sample
        return [
            report.errors.get(at) or within(frame, self._max_result_bytes) for at, frame in enumerate(report.frames)
        ]

    async def _make_ready(self, key: Key, begins: Callable[[], None]) -> None:
        """Load the version where it is not resident, and pin it. begins: called when its load begins.

        A load that ends the runner is the version's fault, not the jobs'. The first time another run, the kernel or an
        operator may have ended it: the version is loaded once more, with nothing beside it. So it is where the runner
        died of others, a few times. Raises what the jobs that wait for it end with, or :class:`LeaseLost`.
        """
        generation = 0

        def begin() -> None:
            nonlocal generation
            generation = self.revival.generation
            begins()

        async def renew() -> None:
            nonlocal generation
            await self.revival.renew()
            generation = self.revival.generation

        for _ in range(cause.MAX_TRIES):
            await self.revival.admitted()
            is_suspect = key in self._fatal_loads
            try:
                await self._residency.pin(key, renew, begin, is_beside=not is_suspect)
            except RunnerCrashed as error:
                evidence = cause.Evidence(1, is_ended_by_us=self.revival.is_ended_by_us(generation))
                await self.revival.after(generation)
                if not cause.is_cause(error, evidence):
                    continue
                if is_suspect:
                    message = f"Version {key[1]} of model {key[0]} took the runner down while it was loaded."
                    raise NotServing(message) from error
                self._fatal_loads[key] = None
            else:
                self._fatal_loads.pop(key, None)
                return
        raise Unavailable("Others kept taking the runner down.")

    async def _fetch(self, held: InFlightJob) -> bytes:
        ref = held.job.ref
        assert ref is not None, "asked only for jobs with a reference"
        try:
            return await persist(lambda: fetch(self._bus, ref))
        except NotFound as error:
            raise InputLost from error

    def _mark(self, jobs: Sequence[InFlightJob], stage: str, *, began_ago_s: float | None = None) -> None:
        """Note that a stage begins. began_ago_s: how long ago the run began that has ended now."""
        now = self._clock()
        for held in jobs:
            stages = held.stages
            if began_ago_s is not None:
                began = stages.pop()[1] if stages[-1][0] == RUN else now
                stages.append((RUN, min(began, now - began_ago_s)))
            stages.append((stage, now))
            if stage == RUN:
                held.is_begun = True
        is_said = stage != COMMIT or began_ago_s is not None  # a run that failed has computed nothing
        if log.is_debug and is_said and (event := _EVENTS.get(stage)):
            joblog.steps(event, (held.job for held in jobs))


def _parts(part: list[InFlightJob], again: Again) -> list[list[InFlightJob]]:
    """The parts that run again, their jobs marked as waiting."""
    for held in part:
        held.is_begun = False
        held.is_alone |= again is Again.ALONE
    if again is Again.SAME:
        return [part]
    return halves(part) if again is Again.HALVES else [[held] for held in part]
