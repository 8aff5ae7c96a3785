"""Whose requests run as one: a real worker and runner, and callers of two accounts at once."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.wire import tensors
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching, Serving
from signalbox.wire.names import Bucket, token
from signalbox.wire.tensors import Tensor
from signalbox.wire.workerdocs import Joining, Residency, Worker
from tests.rigs import dependentrows, models, workerhouse
from tests.rigs.submit import floats, read_floats, register
from tests.rigs.workerhouse import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASKED = Batching(max_size=8, max_delay_ms=300.0, rows_independent=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with workerhouse.house(tmp_path_factory.mktemp("worker"), worker_retire_s=0.5) as made:
        yield made


class Presence:
    """What the worker tells of a model's versions, each change of it in order."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._changed = asyncio.Event()
        self.reported: list[Residency] = []

    def note(self, _key: str, worker: Worker | None, _revision: int) -> None:
        for one in worker.models if worker is not None else ():
            if one.model == self._model and one not in self.reported[-1:]:
                self.reported.append(one)
        self._changed.set()

    async def tried(self, version: int = 1) -> Joining:
        """What came of the trial of a version."""
        async with asyncio.timeout(60):
            while True:
                for one in self.reported:
                    if one.version == version and one.joining is not None:
                        return one.joining
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def presence(bus: Bus, model: str) -> AsyncIterator[Presence]:
    made = Presence(model)
    table = Table(bus, Bucket.WORKERS, Worker)
    table.on_change(made.note)
    await table.start()
    yield made
    await table.close()


def line(*values: float) -> bytes:
    return floats(*values)


def points(*values: float) -> bytes:
    return tensors.encode([Tensor("x", "float32", (len(values) // 2, 2), struct.pack(f"<{len(values)}f", *values))])


def texts(*values: str) -> bytes:
    data = b"".join(len(value).to_bytes(4, "little") + value.encode() for value in values)
    return tensors.encode([Tensor("text", "string", (len(values),), data)])


REQUESTS: dict[str, list[bytes]] = {
    "mean": [line(1.0, 3.0), line(10.0), line(5.0, -5.0, 9.0), line(100.0, 50.0)],
    "scores": [line(1.0, 3.0), line(10.0), line(5.0, -5.0, 9.0), line(100.0, 50.0)],
    "distances": [points(0.0, 0.0, 3.0, 4.0), points(1.0, 1.0), points(2.0, 2.0, 5.0, 6.0, 0.0, 1.0), points(7.0, 7.0)],
    "padded": [texts("one"), texts("one two three four five six"), texts("a b", "c"), texts("of four words each")],
    "sparse": [texts("one"), texts("one two three four five six"), texts("a b", "c"), texts("of four words each")],
}


async def answers(house: House, model: str, bodies: list[bytes]) -> tuple[list[bytes], set[int]]:
    """The answers to requests that two accounts send at once, and how many ran together."""
    ids = [
        await house.ledger.submit(
            model, body, rows=tensors.decode(body)[0].shape[0], account_id=("mine", "other")[at % 2]
        )
        for at, body in enumerate(bodies)
    ]
    records = await house.ledger.ended(*ids)
    assert {record.state for record in records} == {State.SUCCEEDED}
    return [await house.ledger.result(id_) for id_ in ids], {record.batch for record in records}


async def by_themselves(house: House, model: str, bodies: list[bytes]) -> list[bytes]:
    """The answers to requests that nobody else's run beside."""
    return [(await answers(house, model, [body]))[0][0] for body in bodies]


@pytest.mark.parametrize("kind", dependentrows.KINDS)
async def test_an_answer_does_not_depend_on_who_else_asks(house: House, kind: str) -> None:
    path = dependentrows.version(kind)
    bodies = REQUESTS[kind] * 4
    plain, asking = f"{kind}-by-default", f"{kind}-asking"
    await register(house.bus, plain, path, batching=replace(ASKED, rows_independent=False), joined=None)
    right = await by_themselves(house, plain, REQUESTS[kind]) * 4
    assert await answers(house, plain, bodies) == (right, {1})
    async with presence(house.bus, asking) as reported:
        await register(house.bus, asking, path, batching=ASKED, joined=None)
        found = await reported.tried()
    assert found.differs.startswith('Signature "serving_default": joined with other requests, output "y" ')
    assert (found.joined, found.untried) == ((), "")
    assert await answers(house, asking, bodies) == (right, {1})


async def test_only_a_false_word_of_all_mixes_the_answers(house: House) -> None:
    """What the trial is for: the same requests, of a model whose document says that its rows were found equal."""
    bodies = REQUESTS["mean"] * 4
    await register(house.bus, "claimed", dependentrows.version("mean"), batching=ASKED)
    right = await by_themselves(house, "claimed", bodies)
    wrong, together = await answers(house, "claimed", bodies)
    assert max(together) > 1
    assert wrong != right


@pytest.mark.parametrize("name", ["half_plus_two", "weigh", "digits"])
async def test_requests_of_a_model_whose_rows_are_found_independent_are_joined(house: House, name: str) -> None:
    held_out = models.digits()
    path = held_out.path if name == "digits" else getattr(models, name)()
    input_name, inner = {"digits": ("image", (8, 8)), "weigh": ("x", (8,))}.get(name, ("x", ()))
    size = 8 ** len(inner)
    bodies = [
        tensors.encode(
            [Tensor(input_name, "float32", (1, *inner), struct.pack(f"<{size}f", *map(float, range(at, at + size))))]
        )
        for at in range(16)
    ]
    async with presence(house.bus, f"{name}-equal") as reported:
        await register(house.bus, f"{name}-equal", path, batching=ASKED, joined=None)
        found = await reported.tried()
    assert (found.differs, found.untried) == ("", "")
    assert set(found.joined) == ({"serving_default", "features"} if name == "digits" else {"serving_default"})
    got, together = await answers(house, f"{name}-equal", bodies)
    assert max(together) == 8
    assert len(got) == len(bodies)


async def test_the_setting_of_a_version_that_is_in_memory_is_tried_there(house: House) -> None:
    model = await register(
        house.bus, "late", models.half_plus_two(), batching=Batching(max_delay_ms=300.0), joined=None
    )
    assert (await answers(house, "late", [line(1.0), line(2.0)]))[1] == {1}
    async with presence(house.bus, "late") as reported:
        await put(house.bus, Bucket.MODELS, token("late"), replace(model, batching=ASKED))
        assert await reported.tried() == Joining(joined=("serving_default",))
    got, together = await answers(house, "late", [line(1.0), line(2.0)])
    assert ([read_floats(one) for one in got], together) == ([(2.5,), (3.0,)], {2})


async def test_a_new_version_is_tried_before_it_takes_over(house: House) -> None:
    model = await register(house.bus, "new", models.half_plus_two(), batching=ASKED)
    await answers(house, "new", [line(1.0)])
    await put(house.bus, Bucket.SERVING, token("new"), Serving(publication=1, default=1))
    worse = replace(model.versions[0], version=2, path=str(dependentrows.version("mean")), joined=None)
    async with presence(house.bus, "new") as reported:
        rolled = replace(model, versions=(*model.versions, worse), default_version=2)
        await put(house.bus, Bucket.MODELS, token("new"), rolled)
        assert (await reported.tried(2)).differs
    states = [(one.state, one.joining is not None) for one in reported.reported if one.version == 2]
    assert states[-1] == ("ready", True)
    assert ("ready", False) not in states, "it would have taken over"


async def test_a_trial_that_the_runner_dies_of_costs_one_runner_and_requests_run_alone(house: House) -> None:
    deaths = sum(line.get("event") == "runner.died" for line in house.worker.lines)
    async with presence(house.bus, "fragile") as reported:
        model = await register(
            house.bus, "fragile", dependentrows.version(dependentrows.FRAGILE), batching=ASKED, joined=None
        )
        found = await reported.tried()
    assert found == Joining(untried="The runner died while joined requests were tried.")
    got, together = await answers(house, "fragile", [line(float(at)) for at in range(8)])
    assert ([read_floats(one) for one in got], together) == ([(float(at),) for at in range(8)], {1})
    assert sum(line.get("event") == "runner.died" for line in house.worker.lines) == deaths + 1
    known = replace(model, versions=(replace(model.versions[0], joined=()),))  # as the console publishes it
    await put(house.bus, Bucket.MODELS, token("fragile"), known)
    assert (await answers(house, "fragile", [line(1.0), line(2.0)]))[1] == {1}
    assert sum(line.get("event") == "runner.died" for line in house.worker.lines) == deaths + 1
    await put(house.bus, Bucket.MODELS, token("fragile"), model)  # as where it asks again
    await house.worker.said("runner.died", count=deaths + 2)
