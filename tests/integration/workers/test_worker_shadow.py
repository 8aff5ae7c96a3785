"""Candidates that are run in shadow: a real worker and runner, TensorFlow and what presence tells."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from signalbox.bus.table import Table, put
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching, Version
from signalbox.wire.names import Bucket, token
from signalbox.wire.shadows import ShadowFigures
from signalbox.wire.splits import Split
from signalbox.wire.workerdocs import Worker
from tests.rigs import models, workerhouse
from tests.rigs.submit import floats, read_floats, register
from tests.rigs.workerhouse import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROWS = 100


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with workerhouse.house(tmp_path_factory.mktemp("worker")) as made:
        yield made


class Shadowing:
    """What the worker tells of one model's candidate."""

    def __init__(self, house: House, model: str, input_: str, workers: Table[Worker], changed: asyncio.Event) -> None:
        self._house, self._model, self._workers, self._changed = house, model, workers, changed
        self._input = input_
        self.ids: list[str] = []

    @property
    def figures(self) -> ShadowFigures:
        found = self._workers.get(token("w1"))
        of = [one.shadow for one in found.models if (one.model, one.version) == (self._model, 2)] if found else []
        return (of[0] if of else None) or ShadowFigures(base=1)

    async def until(self, is_so: object) -> ShadowFigures:
        """Wait for figures of which that holds."""
        assert callable(is_so)
        async with asyncio.timeout(60):
            while not is_so(self.figures):
                self._changed.clear()
                await self._changed.wait()
        return self.figures

    async def ready(self) -> None:
        """Wait until the candidate is in memory."""
        async with asyncio.timeout(60):
            while (self._model, 2, "ready") not in {
                (one.model, one.version, one.state) for w in self._workers.items().values() for one in w.models
            }:
                self._changed.clear()
                await self._changed.wait()

    @property
    def is_running(self) -> bool:
        """Whether presence says that the candidate is run."""
        return (self._model, 2) in {(w.run.model, w.run.version) for w in self._workers.items().values() if w.run}

    async def ask(self, *values: float, version: int = 1) -> tuple[float, ...]:
        """The answer to one request."""
        id_ = await self._house.ledger.submit(
            self._model, floats(*values, name=self._input), rows=len(values), version=version
        )
        self.ids.append(id_)
        (record,) = await self._house.ledger.ended(id_)
        assert record.state is State.SUCCEEDED
        assert (record.strikes, record.attempt) == (0, 1)
        return read_floats(await self._house.ledger.result(id_))


@asynccontextmanager
async def shadowing(
    house: House, name: str, candidate: Path, *, base: Path | None = None, input_: str = "x", **split: float
) -> AsyncIterator[Shadowing]:
    """A model whose version 2 is run in shadow of its version 1, half_plus_two if ``base`` is not given."""
    base = base or models.half_plus_two()
    changed = asyncio.Event()
    table = Table(house.bus, Bucket.WORKERS, Worker)
    table.on_change(lambda *_: changed.set())
    await table.start()
    shadow = Split(candidate=2, weight=0.0, **{"shadow": 1.0, "since": 1.0, **split})  # type: ignore[arg-type]  # a test's
    paths = {1: base, 2: candidate}
    versions = tuple(Version(version=v, path=str(path), size_bytes=10_000, joined=()) for v, path in paths.items())
    model = await register(house.bus, name, base, batching=Batching())
    made = Shadowing(house, name, input_, table, changed)
    try:
        await made.ask(0.001)
        await put(house.bus, Bucket.MODELS, token(name), replace(model, versions=versions, splits=(shadow,)))
        await made.ready()
        yield made
    finally:
        await table.close()


async def test_one_input_in_a_hundred_that_is_answered_otherwise_is_seen_and_no_caller_sees_it(house: House) -> None:
    async with shadowing(house, "one-percent", models.astray()) as made:
        at = 0
        while made.figures.compared < 10 * ROWS:  # a sample is dropped where a load is under way
            at = at % 9 + 1
            values = [float(ROWS * at + row) for row in range(ROWS)]
            assert await made.ask(*values) == tuple(value / 2 + 2 for value in values)
        found = made.figures
    assert (found.base, found.failed, ROWS * found.outside, found.timed) == (1, 0, found.compared, found.runs)
    assert {name: (one.outside, one.largest) for name, one in found.tensors.items()} == {"y": (found.outside, 1.0)}
    assert found.run_s > 0 < found.base_run_s
    assert len(house.ledger.open(made.ids)) == 0


async def test_one_that_is_equal_has_nothing_outside(house: House) -> None:
    async with shadowing(house, "equal", models.half_plus_two()) as made:
        while not made.figures.compared:
            await made.ask(*map(float, range(ROWS)))
        found = made.figures
    assert (found.outside, found.failed, found.halted) == (0, 0, "")


async def test_what_differs_by_less_than_the_tolerance_is_not_outside(house: House) -> None:
    async with shadowing(house, "tolerant", models.astray(), tolerance=0.1) as made:
        while not made.figures.compared:
            await made.ask(1000.0, 1001.0)
        found = made.figures
    assert (found.outside, found.tensors["y"].largest) == (0, 1.0)


async def test_a_candidate_that_takes_the_runner_down_in_shadow_halts_there_and_strikes_no_job(house: House) -> None:
    async with shadowing(house, "fatal-shadow", models.astray()) as made:
        while not made.figures.halted:  # the next sample takes the place of one that waits
            assert await made.ask(-200.0) == (-98.0,)
            answers = await asyncio.gather(*(made.ask(float(at)) for at in range(8)))
            assert answers == [(at / 2 + 2,) for at in range(8)]
        found = made.figures
        assert (found.halted, found.failed) == ("A run of it ended the runner.", 1)
        await made.ready()  # it is in memory again, and run no more
        assert await made.ask(-200.0, 1.0) == (-98.0, 2.5)
        assert await made.ask(5.0) == (4.5,)
        assert made.figures.runs == found.runs
    assert sum(line.get("event") == "shadow.halted" for line in house.worker.lines) == 1


async def test_a_job_that_waits_behind_a_shadow_run_that_ends_the_runner_runs_again_without_a_strike(
    house: House,
) -> None:
    collapsing, slow = models.collapsing(), models.slow()
    async with shadowing(house, "behind-shadow", collapsing, base=slow, input_="seconds") as made:
        while not (made.is_running or made.figures.halted):
            await made.ask(0.02)
        await made.ask(0.001)  # it has no strike, and one attempt
        assert (await made.until(lambda found: found.halted)).halted == "A run of it ended the runner."
