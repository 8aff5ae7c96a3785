"""Which job is the cause when a runner dies, and how often it has to: a scripted runner, everything else real."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.jobs import times
from signalbox.jobs.times import BATCH, WARM, Span
from signalbox.program.errors import (
    DeadlineExceeded,
    ModelError,
    NotServing,
    OutOfMemory,
    ResultTooLarge,
    RunnerCrashed,
    SignalboxError,
    Unavailable,
)
from signalbox.wire.messages import Job, Record, State
from signalbox.wire.modeldocs import Limits
from workers.residency.activity import Activity
from workers.residency.versions import Renew
from workers.runner.link import RunReport
from workers.runner.wire import RunnerLost
from workers.serving.batchrun import BatchRun
from workers.serving.execution import Executor
from workers.serving.inflight import InFlightJob, InFlightJobs
from workers.statistics.worker import Statistics

KILLER, REFUSED, FINE = b"killer", b"refused", b"fine"


class Runner:
    """Dies of a killer, refuses what it refuses, and holds at most ``fits`` jobs in memory."""

    def __init__(self, fits: int = 1000) -> None:
        self.fits = fits
        self.restarts = 0
        self.runs: list[int] = []
        self.entered = asyncio.Event()
        self.entered.set()
        self.token = 1
        self.gate: asyncio.Event | None = None
        self.both_run = asyncio.Event()
        self.on_restart: Callable[[], None] = lambda: None
        self.on_run: Callable[[], None] = lambda: None
        self.errors: list[SignalboxError] = []

    async def run(
        self,
        _model: str,
        _version: int,
        _signature: str,
        frames: Sequence[bytes],
        _outputs: tuple[str, ...],
        **_more: Any,
    ) -> RunReport:
        self.runs.append(len(frames))
        self.on_run()
        if self.errors:
            raise self.errors.pop(0)
        if len(self.runs) == 2:
            self.both_run.set()
        if self.gate is not None:
            is_first = len(self.runs) == 1
            await self.gate.wait()
            raise RunnerCrashed if is_first else RunnerLost
        if KILLER in frames:
            raise RunnerCrashed
        if len(frames) > self.fits:
            raise OutOfMemory
        refused: dict[int, SignalboxError] = {i: ModelError() for i, frame in enumerate(frames) if frame == REFUSED}
        if len(refused) == len(frames):
            raise ModelError
        return RunReport(frames=list(frames), seconds=0.0, errors=refused)

    async def restart(self) -> None:
        self.restarts += 1
        self.on_restart()

    def kill(self) -> None:
        assert self.gate is not None
        self.gate.set()


class Memory:
    """A version is there, or loading it takes so many runners down. is_full: it needs a fresh one."""

    def __init__(self, *, deaths: int = 0, is_full: bool = False) -> None:
        self.deaths = deaths
        self.is_full = is_full
        self.beside: list[bool] = []
        self.death: type[SignalboxError] = RunnerCrashed
        self.spans: tuple[times.Span, ...] = ()

    def take(self, _key: object) -> bool:
        return not self.deaths and not self.is_full

    def load_spans(self, _key: object) -> tuple[times.Span, ...]:
        return self.spans

    async def pin(self, _key: object, renew: Renew, begins: Callable[[], None], *, is_beside: bool) -> None:
        begins()
        self.beside.append(is_beside)
        if self.is_full:
            self.is_full = False
            await renew()
        if self.deaths:
            self.deaths -= 1
            raise self.death

    def is_loading_another(self, _model: str) -> bool:
        return False

    def unpin(self, _key: object) -> None:
        """Nothing to count."""

    def forget(self) -> None:
        """Nothing to forget."""


class Fleet:
    """One model; nothing in quarantine."""

    class quarantine:  # noqa: N801  as the real one is reached
        """Nothing concerns anybody."""

        @staticmethod
        def concerns(_model: str) -> bool:
            return False

    def find(self, _name: str) -> None:
        return None

    def limits(self, _name: str) -> Limits:
        return Limits()


class Message:
    """What of a delivery a run needs."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def held(data: bytes, batch_key: str = "s|8", rows: int = 1) -> InFlightJob:
    job = Job(
        id="j",
        model="m",
        version=1,
        signature="s",
        account_id="k",
        created_at=0.0,
        deadline_at=9e9,
        batch_key=batch_key,
        rows=rows,
    )
    made = InFlightJob(cast("Any", Message(data)), job, now_s=0.0)
    made.stages.append((BATCH, 0.0))
    return made


def begin_of(job: InFlightJob, stage: str) -> list[float]:
    """When a job came into a stage, each time."""
    return [at for name, at in job.stages if name == stage]


def execution(runner: Runner, memory: Memory | None = None, clock: Callable[[], float] = lambda: 0.0) -> Executor:
    nothing: Any = None
    statistics = Statistics()
    return Executor(
        bus=nothing,
        runner=cast("Any", runner),
        residency=cast("Any", memory or Memory()),
        fleet=cast("Any", Fleet()),
        statistics=statistics,
        activity=Activity(statistics, lambda: 0.0, asyncio.Event()),
        clock=clock,
    )


async def outcomes(made: Executor, batch_run: BatchRun) -> list[object]:
    """``bytes`` for a result, else the kind of error."""
    found = await made.run(batch_run)
    return [FINE if isinstance(each, bytes) else type(each) for each in found]


@given(st.lists(st.sampled_from([FINE, FINE, FINE, REFUSED, KILLER]), min_size=1, max_size=16), st.integers(1, 16))
def test_each_job_of_a_batch_meets_its_own_fate_and_a_death_costs_one_restart(inputs: list[bytes], fits: int) -> None:
    async def run() -> tuple[list[object], Runner, list[InFlightJob]]:
        runner = Runner(fits)
        made = execution(runner)
        jobs = [held(data) for data in inputs]
        return await outcomes(made, BatchRun(jobs)), runner, jobs

    found, runner, jobs = asyncio.run(run())
    fates: dict[bytes, object] = {FINE: FINE, REFUSED: ModelError, KILLER: RunnerCrashed}
    assert found == [fates[data] for data in inputs]
    killers = inputs.count(KILLER)
    assert killers <= runner.restarts <= 2 * killers
    if killers and len(inputs) <= 2:
        assert runner.restarts == killers + (len(inputs) > 1)
    assert len(runner.runs) <= 4 * len(inputs)
    if not killers:
        assert not any(job.is_alone for job in jobs)


async def test_a_result_above_its_bound_fails_its_own_job_and_no_other() -> None:
    made = execution(Runner())
    made._max_result_bytes = len(FINE)
    jobs = [held(FINE), held(FINE + b"and more"), held(FINE)]
    assert await outcomes(made, BatchRun(jobs)) == [FINE, ResultTooLarge, FINE]


async def test_memory_used_up_is_found_once_and_not_by_every_part() -> None:
    runner = Runner(fits=4)
    made = execution(runner)
    found = await outcomes(made, BatchRun([held(FINE) for _ in range(32)]))
    assert set(found) == {FINE}
    assert [size for size in runner.runs if size > 4] == [32, 16, 8]


async def test_one_caller_s_large_rows_leave_the_others_batches_as_they_are() -> None:
    runner = Runner(fits=1)
    made = execution(runner)
    large = [held(FINE, "s|8000,8000,3") for _ in range(2)]
    assert await outcomes(made, BatchRun(large)) == [FINE, FINE]
    runner.fits, runner.runs = 1000, []
    assert set(await outcomes(made, BatchRun([held(FINE) for _ in range(32)]))) == {FINE}
    assert runner.runs == [32]


async def test_a_version_that_dies_loading_is_not_its_jobs_fault() -> None:
    runner, memory = Runner(), Memory(deaths=3)
    made = execution(runner, memory)
    found = await outcomes(made, BatchRun([held(FINE) for _ in range(8)]))
    assert found == [NotServing] * 8
    assert runner.restarts == 2
    found = await outcomes(made, BatchRun([held(FINE)]))
    assert found == [NotServing], "what is known of it is not tried out again and again"
    assert runner.restarts == 3
    assert memory.beside == [True, False, False], "and with nothing beside it, so that nothing else is the cause"


async def test_a_runner_that_is_killed_while_it_loads_costs_no_job() -> None:
    runner = Runner()
    made = execution(runner, Memory(deaths=1))
    found = await outcomes(made, BatchRun([held(FINE) for _ in range(8)]))
    assert found == [FINE] * 8
    assert runner.restarts == 1


async def test_each_job_of_a_batch_says_what_its_load_did() -> None:
    now, memory = 0.0, Memory()
    memory.take = lambda _key: now > 0.0  # type: ignore[method-assign]
    memory.spans = (Span(WARM, 2.0, 3.0),)

    def clock() -> float:
        nonlocal now
        at, now = now, 4.0
        return at

    jobs = [held(FINE), held(FINE)]
    await outcomes(execution(Runner(), memory, clock), BatchRun(jobs))
    for job in jobs:
        stages = [("batch", 0.0), ("load", 0.0), ("warm", 2.0), ("load", 3.0), ("load", 4.0), ("batch", 4.0)]
        assert job.stages[:6] == stages


async def test_who_takes_a_runner_down_that_was_made_for_him_is_the_cause() -> None:
    runner = Runner()
    made = execution(runner, Memory(is_full=True))
    assert await outcomes(made, BatchRun([held(KILLER)])) == [RunnerCrashed]
    assert runner.runs == [1]
    assert runner.restarts == 2, "one for the load, one for the death"


async def test_a_runner_ended_for_a_cancelled_job_is_nobodys_strike() -> None:
    runner = Runner()
    runner.gate = asyncio.Event()
    made = execution(runner)
    first, second = BatchRun([held(FINE), held(FINE)]), BatchRun([held(FINE)])
    running = [asyncio.create_task(outcomes(made, batch_run)) for batch_run in (first, second)]
    await runner.both_run.wait()
    cancelled = second.jobs[0]
    cancelled.is_cancelled = True
    await made.stop(second, cancelled, grace_s=0.0)
    runner.gate = None
    assert await running[0] == [FINE, FINE]
    assert await running[1] == [Unavailable], "it is not run again, and ends cancelled"
    assert runner.restarts == 1
    assert not any(job.is_alone for job in first.jobs)


async def test_a_batch_behind_the_one_that_took_the_runner_down_runs_again_without_a_strike() -> None:
    runner = Runner()
    made = execution(runner)
    first, second = BatchRun([held(KILLER)]), BatchRun([held(FINE), held(FINE)])
    runner.gate = asyncio.Event()
    running = [asyncio.create_task(outcomes(made, batch_run)) for batch_run in (first, second)]
    await runner.both_run.wait()
    runner.gate.set()
    runner.gate = None
    assert await asyncio.gather(*running) == [[RunnerCrashed], [FINE, FINE]]
    assert runner.restarts == 1
    assert not any(job.is_alone for job in second.jobs)


async def test_a_run_is_timed_by_the_try_that_counts_and_waits_until_that_begins() -> None:
    """Each run takes a second, the first restart ten."""
    now, runner, in_flight = 0.0, Runner(), InFlightJobs()

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    def restarted() -> None:
        assert in_flight.waiting() == {"m": 4}, "nothing computes"
        passes(10.0)

    runner.on_run = lambda: passes(1.0)
    made = execution(runner, clock=lambda: now)
    jobs = [held(KILLER), held(FINE), held(FINE), held(FINE)]
    for number, job in enumerate(jobs):
        job.job = replace(job.job, id=str(number))
        in_flight.take(job)
    runner.on_restart = lambda: None if len(runner.runs) > 1 else restarted()
    assert await outcomes(made, BatchRun(jobs)) == [RunnerCrashed, FINE, FINE, FINE]
    assert [begin_of(job, "run") for job in jobs] == [[0.0, 11.0], [0.0, 12.0], [0.0, 13.0], [0.0, 14.0]]
    assert [begin_of(job, "runner") for job in jobs] == [[1.0, 12.0], [1.0], [1.0], [1.0]]
    assert [begin_of(job, "commit") for job in jobs] == [[12.0], [13.0], [14.0], [15.0]]


async def test_halves_of_a_batch_that_used_the_memory_up_wait_until_each_begins() -> None:
    runner, in_flight, waited = Runner(fits=1), InFlightJobs(), list[int]()
    made = execution(runner)
    jobs = [held(FINE), held(FINE)]
    for number, job in enumerate(jobs):
        job.job = replace(job.job, id=str(number))
        in_flight.take(job)
    runner.on_run = lambda: waited.append(in_flight.waiting().get("m", 0))
    assert await outcomes(made, BatchRun(jobs)) == [FINE, FINE]
    assert waited == [0, 1, 0]


@pytest.mark.parametrize("error", [OutOfMemory(), DeadlineExceeded()])
async def test_what_ends_a_job_beside_a_load_ahead_is_no_jobs_fault_until_it_runs_without_one(
    error: SignalboxError,
) -> None:
    runner = Runner()
    made = execution(runner)
    runner.errors = [error]
    with made._activity.loading(("other", 1), is_beside=True):
        jobs = [held(FINE)]
        jobs[0].job = replace(jobs[0].job, rows=8)
        batch_run = BatchRun(jobs)
        running = asyncio.create_task(outcomes(made, batch_run))
        for _ in range(20):
            await asyncio.sleep(0)
        assert runner.runs == [1], "the next try waits for the load"
        has_suspect = made._activity.has_suspect
        assert has_suspect, "and no other load begins before it"
    assert await running == [FINE]
    assert not made._statistics.batch_limits.rows(batch_run.limit_key)
    assert not made._activity.has_suspect
    runner.errors = [error]
    assert await outcomes(made, BatchRun(jobs)) == [type(error)], "alone"


async def test_a_job_that_has_taken_a_runner_down_runs_beside_no_load_ahead() -> None:
    runner = Runner()
    made = execution(runner)
    again = held(KILLER)
    job = again.job
    again.record = Record(
        id=job.id,
        state=State.QUEUED,
        model="m",
        version=1,
        signature="s",
        account_id="k",
        created_at=0.0,
        deadline_at=job.deadline_at,
        strikes=1,
    )
    with made._activity.loading(("other", 1), is_beside=True):
        running = asyncio.create_task(outcomes(made, BatchRun([again])))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not runner.runs
    assert await running == [RunnerCrashed]


async def test_no_load_ahead_begins_while_the_suspects_of_a_death_run_alone() -> None:
    runner, suspected = Runner(), list[bool]()
    made = execution(runner)
    runner.on_restart = runner.on_run = lambda: suspected.append(made._activity.has_suspect)
    assert await outcomes(made, BatchRun([held(FINE), held(KILLER)])) == [FINE, RunnerCrashed]
    assert suspected == [False, True, True, True, True], "run, restart, run, run, restart"
    assert not made._activity.has_suspect


async def test_a_load_whose_runner_another_one_takes_down_is_made_again_a_few_times() -> None:
    runner, memory = Runner(), Memory(deaths=3)
    memory.death = RunnerLost
    made = execution(runner, memory)
    await made.load(("m", 1), lambda: None)
    assert memory.beside == [True] * 4
    assert runner.restarts == 3
    memory.deaths = 10
    with pytest.raises(Unavailable):
        await made.load(("m", 1), lambda: None)


async def test_jobs_whose_version_could_not_be_loaded_end_with_that_and_cancelled_ones_as_asked() -> None:
    runner = Runner()
    made = execution(runner)
    jobs = [held(FINE), held(FINE)]
    jobs[1].is_cancelled = True
    assert await outcomes(made, BatchRun(jobs, NotServing("It cannot be loaded."))) == [NotServing, Unavailable]
    assert not runner.runs
