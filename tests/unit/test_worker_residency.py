import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from signalbox.errors import Unavailable
from signalbox.messages import Model, Version
from workers.residency import Residency
from workers.runnerlink import LoadReport
from workers.serving.activity import Activity
from workers.shelf import DoesNotFit, Key, Shelf
from workers.tally import Tally


class Memory:
    """What a runner does with its memory: versions of 40 bytes come and go."""

    def __init__(self) -> None:
        self.loaded: dict[Key, LoadReport] = {}

    async def load(
        self, model: str, version: int, path: str, warm: bool, digest: str
    ) -> LoadReport:
        del path, warm, digest
        report = LoadReport(size_bytes=40 << 20, seconds=0.0, signatures={})
        self.loaded[model, version] = report
        return report

    async def unload(self, model: str, version: int) -> None:
        del self.loaded[model, version]


def activity() -> Activity:
    return Activity(Tally(), time.time, lambda: None)


async def never() -> None:
    raise AssertionError("nothing used the memory up")


def catalog(name: str) -> Model:
    return Model(name=name, versions=(Version(version=1, path="/m/1", size_bytes=40 << 20),))


@pytest.fixture
def memory() -> Memory:
    return Memory()


def residency(
    memory: Memory, placed: set[str], may_load: Callable[[], bool] = lambda: True
) -> Residency:
    return Residency(
        cast("Any", memory), Shelf(100 << 20), catalog, activity(), lambda: None,
        is_spare=lambda key: key[0] not in placed, may_load=may_load,
    )  # fmt: skip


async def test_a_model_placed_elsewhere_leaves_when_another_needs_the_room(memory: Memory) -> None:
    placed = {"old", "used"}
    made = residency(memory, placed)
    await made.keep_warm([("old", 1), ("used", 1)])
    placed -= {"old"}  # its replicas were lowered
    assert set(memory.loaded) == {("old", 1), ("used", 1)}, "it stays while nobody needs the room"
    placed |= {"new"}
    await made.keep_warm([("used", 1), ("new", 1)])
    assert set(memory.loaded) == {("used", 1), ("new", 1)}


async def test_what_is_placed_here_is_not_pushed_out_ahead_of_need(memory: Memory) -> None:
    made = residency(memory, {"a", "b", "c"})
    await made.keep_warm([("a", 1), ("b", 1), ("c", 1)])
    assert set(memory.loaded) == {("a", 1), ("b", 1)}
    assert await made.pin(("c", 1), never), "a job that needs it loads it"
    assert ("c", 1) in memory.loaded


async def test_what_a_run_uses_does_not_leave_though_it_is_spare(memory: Memory) -> None:
    placed = {"a", "b"}
    made = residency(memory, placed)
    await made.pin(("a", 1), never)
    await made.pin(("b", 1), never)
    placed.clear()
    placed.add("c")
    await made.keep_warm([("c", 1)])
    assert set(memory.loaded) == {("a", 1), ("b", 1)}
    made.unpin(("a", 1))
    await made.pin(("c", 1), never)
    assert set(memory.loaded) == {("b", 1), ("c", 1)}


async def test_beside_a_stranger_what_is_there_serves_and_nothing_is_loaded(memory: Memory) -> None:
    is_alone = True
    made = residency(memory, {"a", "b"}, may_load=lambda: is_alone)
    await made.pin(("a", 1), never)
    is_alone = False
    await made.keep_warm([("a", 1), ("b", 1)])
    assert [made.may_serve(catalog(name)) for name in ("a", "b")] == [True, False]
    assert not await made.pin(("a", 1), never), "it is there"
    with pytest.raises(Unavailable):
        await made.pin(("b", 1), never)
    assert set(memory.loaded) == {("a", 1)}
    is_alone = True
    assert await made.pin(("b", 1), never)


async def test_what_is_larger_than_the_whole_budget_is_refused_and_ends_no_runner(
    memory: Memory,
) -> None:
    made = Residency(cast("Any", memory), Shelf(30 << 20), catalog, activity(), lambda: None)
    with pytest.raises(DoesNotFit, match="memory budget"):
        await made.pin(("a", 1), never)
    assert not memory.loaded
