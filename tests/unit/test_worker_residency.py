from typing import Any, cast

import pytest

from signalbox.messages import Model, Version
from workers.residency import Residency
from workers.runnerlink import LoadReport
from workers.shelf import Key, Shelf


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


def catalog(name: str) -> Model:
    return Model(name=name, versions=(Version(version=1, path="/m/1", size_bytes=40 << 20),))


@pytest.fixture
def memory() -> Memory:
    return Memory()


def residency(memory: Memory, placed: set[str]) -> Residency:
    return Residency(
        cast("Any", memory), Shelf(100 << 20), catalog, lambda: None,
        is_spare=lambda key: key[0] not in placed,
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
    assert await made.pin(("c", 1)), "a job that needs it loads it"
    assert ("c", 1) in memory.loaded


async def test_what_a_run_uses_does_not_leave_though_it_is_spare(memory: Memory) -> None:
    placed = {"a", "b"}
    made = residency(memory, placed)
    await made.pin(("a", 1))
    await made.pin(("b", 1))
    placed.clear()
    placed.add("c")
    await made.keep_warm([("c", 1)])
    assert set(memory.loaded) == {("a", 1), ("b", 1)}
    made.unpin(("a", 1))
    await made.pin(("c", 1))
    assert set(memory.loaded) == {("b", 1), ("c", 1)}
