import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program.errors import LeaseLost, ModelError, NotServing, Unavailable
from signalbox.wire.modeldocs import Model, Version
from workers.residency.activity import Activity
from workers.residency.cache import DoesNotFit, Key, ModelCache
from workers.residency.versions import ResidentVersions, VersionDropped
from workers.runner.frames import VersionLoaded
from workers.runner.wire import RunnerLost
from workers.statistics.worker import Statistics

MIB = 1 << 20


class Memory:
    """What a runner does with its memory: versions of 40 MiB, or what ``sizes`` says, come and go."""

    def __init__(self) -> None:
        self.loaded: dict[Key, VersionLoaded] = {}
        self.sizes: dict[str, int] = {}
        self.loads: list[str] = []
        self.timeouts_s: list[float] = []
        self.beside: list[Key] = []
        self.refused: set[Key] = set()
        self.error: Exception = ModelError("broken")
        self.gate: asyncio.Event | None = None
        self.during_unload: Callable[[], Awaitable[object]] | None = None

    @property
    def used_bytes(self) -> int:
        return sum(report.size_bytes for report in self.loaded.values())

    async def load(
        self, model: str, version: int, path: str, *, is_beside: bool, timeout_s: float, **_: object
    ) -> VersionLoaded:
        del path
        self.timeouts_s.append(timeout_s)
        await asyncio.sleep(0)
        if (model, version) in self.refused:
            raise self.error
        if self.gate is not None:
            await self.gate.wait()
        if is_beside:
            self.beside.append((model, version))
        size = self.sizes.get(model, 40 * MIB)
        report = VersionLoaded(0, size, 0.0, 0, {})
        self.loaded[model, version] = report
        self.loads.append(model)
        return report

    async def unload(self, model: str, version: int) -> None:
        del self.loaded[model, version]  # asked for before whatever is asked for next
        during, self.during_unload = self.during_unload, None
        if during is not None:
            await during()
        await asyncio.sleep(0)


def activity() -> Activity:
    return Activity(Statistics(), time.time, asyncio.Event())


async def never() -> None:
    raise AssertionError("nothing used the memory up")


async def settled() -> None:
    """Let everything go on that can: nothing here waits for anything but its turn."""
    for _ in range(50):
        await asyncio.sleep(0)


def catalog(name: str, versions: tuple[int, ...] = (1,)) -> Model:
    known = tuple(Version(version=v, path=f"/m/{v}", size_bytes=40 * MIB) for v in versions)
    return Model(name=name, versions=known)


@pytest.fixture
def memory() -> Memory:
    return Memory()


def residency(memory: Memory, placed: set[str], may_load: Callable[[], bool] = lambda: True) -> ResidentVersions:
    return ResidentVersions(
        cast("Any", memory),
        ModelCache(100 << 20),
        catalog,
        activity(),
        asyncio.Event(),
        is_spare=lambda key: key[0] not in placed,
        may_load=may_load,
    )


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


async def test_what_is_asked_for_takes_the_place_of_what_is_idle_and_never_of_what_a_job_waits_for(
    memory: Memory,
) -> None:
    made = residency(memory, {"a", "b", "c", "d"})
    await made.keep_warm([("a", 1), ("b", 1)], asked=[("c", 1)])
    assert set(memory.loaded) == {("a", 1), ("c", 1)}, "what is asked for comes first"
    made.is_waited = lambda key: key[0] == "a"
    await made.keep_warm([], asked=[("d", 1)])
    assert set(memory.loaded) == {("a", 1), ("d", 1)}
    made.is_waited = lambda _: True
    await made.keep_warm([], asked=[("b", 1)])
    assert set(memory.loaded) == {("a", 1), ("d", 1)}


async def test_a_load_for_a_job_goes_beside_runs_unless_one_may_be_what_takes_runners_down(memory: Memory) -> None:
    made = residency(memory, {"a", "b", "c"})
    await made.pin(("a", 1), never)
    made._activity.suspect("a batch")
    await made.pin(("b", 1), never)
    made._activity.trust("a batch")
    for name in "ab":
        made.unpin((name, 1))
    await made.pin(("c", 1), never, is_beside=False)
    assert memory.beside == [("a", 1)]
    assert memory.loads == ["a", "b", "c"]


async def test_what_jobs_wait_for_leaves_last_and_nothing_begins_while_a_load_waits_for_room(memory: Memory) -> None:
    made = residency(memory, {"a", "b", "c", "d"})
    changed: list[str] = []
    made.on_change = lambda model: changed.append(f"{model}, may run: {made.may_run}")
    made.is_waited = lambda key: key == ("a", 1)
    for name in "ab":
        await made.pin((name, 1), never)
        made.unpin((name, 1))
    assert made.has_room(("c", 1))
    await made.pin(("c", 1), never)
    assert set(memory.loaded) == {("a", 1), ("c", 1)}, "though the other was used later"
    assert not made.has_room(("d", 1))
    await made.pin(("a", 1), never)
    changed.clear()
    waiting = asyncio.create_task(made.pin(("d", 1), never))
    await settled()
    assert not changed
    may_run = made.may_run
    assert not may_run
    made.unpin(("c", 1))
    await waiting
    assert changed == ["d, may run: True"] * 2, "there is room, and it is ready"
    assert set(memory.loaded) == {("a", 1), ("d", 1)}


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


async def test_a_load_waits_for_a_run_to_end_where_no_more_versions_may_be_in_memory(memory: Memory) -> None:
    cache = ModelCache(100 * MIB, most=1)
    made = ResidentVersions(cast("Any", memory), cache, catalog, activity(), asyncio.Event(), load_s=7.0)
    await made.pin(("a", 1), never)
    waiting = asyncio.create_task(made.pin(("b", 1), never))
    await settled()
    assert set(memory.loaded) == {("a", 1)}
    made.unpin(("a", 1))
    assert await waiting
    assert set(memory.loaded) == {("b", 1)}
    assert memory.timeouts_s == [7.0, 7.0]


async def test_what_is_evicted_by_hand_leaves_after_its_run_and_comes_back_only_when_it_is_asked_for(
    memory: Memory,
) -> None:
    made = residency(memory, {"a", "b"})
    wanted = [("a", 1), ("b", 1)]
    await made.keep_warm(wanted)
    await made.pin(("a", 1), never)
    made.evict(("a", 1))
    made.evict(("absent", 1))
    await made.keep_warm(wanted)
    assert set(memory.loaded) == {("a", 1), ("b", 1)}, "a run uses it"
    made._due.clear()
    made.unpin(("a", 1))
    assert made._due.is_set()
    for _ in range(2):
        await made.keep_warm(wanted)
        assert set(memory.loaded) == {("b", 1)}
    await made.pin(("a", 1), never)
    made.unpin(("a", 1))
    await made.keep_warm(wanted)
    assert set(memory.loaded) == {("a", 1), ("b", 1)}
    made.evict(("a", 1))
    await made.keep_warm(wanted)
    await made.keep_warm(wanted, asked=[("a", 1)])
    assert set(memory.loaded) == {("a", 1), ("b", 1)}, "an operator loads it"


async def test_what_is_pinned_is_loaded_is_not_evicted_by_hand_and_leaves_when_the_catalog_drops_it(
    memory: Memory,
) -> None:
    cache = ModelCache(100 * MIB, pin_bytes=50 * MIB)
    cache.pinned = lambda: [("a", 1)]
    known = {"a", "b", "c"}

    def find(name: str) -> Model | None:
        return catalog(name) if name in known else None

    made = ResidentVersions(cast("Any", memory), cache, find, activity(), asyncio.Event())
    await made.keep_warm([], asked=cache.pinned())
    made.evict(("a", 1))
    for name in "bc":
        await made.pin((name, 1), never)
        made.unpin((name, 1))
    await made.keep_warm([], asked=cache.pinned())
    assert set(memory.loaded) == {("a", 1), ("c", 1)}
    known -= {"a"}
    await made.keep_warm([], asked=[])
    assert set(memory.loaded) == {("c", 1)}


async def test_what_is_larger_than_the_whole_budget_is_refused_and_ends_no_runner(memory: Memory) -> None:
    cache = ModelCache(30 * MIB)
    made = ResidentVersions(cast("Any", memory), cache, catalog, activity(), asyncio.Event())
    with pytest.raises(DoesNotFit, match="memory budget"):
        await made.pin(("a", 1), never)
    assert not memory.loaded
    (reported,) = cache.residencies()
    assert (reported.state, "memory budget" in reported.error) == ("failed", True)


async def test_a_version_that_turns_out_larger_makes_idle_ones_leave_before_it_runs(memory: Memory) -> None:
    made = residency(memory, {"a", "b", "c"})
    for name in ("a", "b"):
        await made.pin((name, 1), never)
        made.unpin((name, 1))
    memory.sizes["c"] = 70 * MIB
    await made.pin(("c", 1), never)
    assert memory.used_bytes <= 100 * MIB
    assert set(memory.loaded) == {("c", 1)}
    made.unpin(("c", 1))
    for name in ("a", "c"):  # the second time its true size is known
        await made.pin((name, 1), never)
        made.unpin((name, 1))
    assert set(memory.loaded) == {("c", 1)}


async def test_nothing_begins_while_what_is_in_use_keeps_the_budget_passed(memory: Memory) -> None:
    made = residency(memory, {"a", "b", "c"})
    await made.pin(("a", 1), never)
    memory.sizes["b"] = 70 * MIB
    waiting = [asyncio.create_task(made.pin(("b", 1), never))]
    await settled()
    assert memory.used_bytes == 110 * MIB, "and one of the two is in use"
    waiting.append(asyncio.create_task(made.pin(("a", 1), never)))
    await settled()
    assert not any(task.done() for task in waiting)
    made.unpin(("a", 1))
    assert await waiting[0]
    assert set(memory.loaded) == {("b", 1)}
    made.unpin(("b", 1))
    assert await waiting[1], "it is loaded again when there is room"
    assert memory.used_bytes <= 100 * MIB


async def test_what_alone_passes_the_budget_is_unloaded_refused_and_not_tried_again(memory: Memory) -> None:
    made = residency(memory, {"a", "b"})
    memory.sizes["a"] = 120 * MIB
    for _ in range(2):
        with pytest.raises(DoesNotFit, match="memory budget"):
            await made.pin(("a", 1), never)
        assert not memory.loaded
    assert memory.loads == ["a"]
    await made.keep_warm([("a", 1), ("b", 1)])
    assert set(memory.loaded) == {("b", 1)}


async def test_a_version_nobody_needs_yet_leaves_again_if_others_would_have_to(memory: Memory) -> None:
    made = residency(memory, {"a", "b"})
    memory.sizes["b"] = 70 * MIB
    await made.keep_warm([("a", 1), ("b", 1)])
    assert set(memory.loaded) == {("a", 1)}
    await made.keep_warm([("a", 1), ("b", 1)])
    assert memory.loads == ["a", "b"], "what it takes is known by now"


class Rolling:
    """A residency of the model ``m`` with versions 1 to 3, whose targets are handed in by a test."""

    def __init__(self, memory: Memory, budget: int = 100 * MIB, retire_s: float = 1e-9) -> None:
        self.memory = memory
        self.cache = ModelCache(budget)
        self.targets: list[Key] = []
        self.versions: tuple[int, ...] = (1, 2, 3)
        self.reported: list[dict[int, str]] = []
        self.activity = activity()
        self.due = asyncio.Event()
        changed = asyncio.Event()
        changed.set = lambda: self.reported.append(self.states())  # type: ignore[method-assign]
        self.made = ResidentVersions(
            cast("Any", memory),
            self.cache,
            lambda name: catalog(name, self.versions),
            self.activity,
            changed,
            is_spare=lambda key: key not in self.targets,
            due=self.due,
            retire_s=retire_s,
        )

    async def want(self, *versions: int, is_ahead: bool = True) -> dict[int, str]:
        """States after the targets have become these versions."""
        self.targets = [("m", version) for version in versions]
        await self.made.keep_warm(self.targets, is_ahead=is_ahead)
        return self.states()

    def states(self) -> dict[int, str]:
        """Version -> state, as presence tells it."""
        return {r.version: r.state for r in self.cache.residencies()}


async def test_a_version_is_loaded_beside_the_one_it_replaces_which_leaves_when_it_is_idle(memory: Memory) -> None:
    rolling = Rolling(memory)
    assert await rolling.want(1) == {1: "ready"}
    await rolling.made.pin(("m", 1), never)
    assert await rolling.want(2, 1) == {1: "ready", 2: "ready"}
    assert memory.beside == [("m", 1), ("m", 2)]
    assert await rolling.want(2) == {1: "ready", 2: "ready"}, "in use"
    rolling.made.unpin(("m", 1))
    assert await rolling.want(2) == {2: "ready"}
    await rolling.made.pin(("m", 1), never)
    rolling.made.unpin(("m", 1))
    assert await rolling.want(2) == {1: "ready", 2: "ready"}, "asked for by its number, it stays"


async def test_a_version_in_use_that_the_catalog_drops_is_due_to_leave_when_its_last_run_ends(memory: Memory) -> None:
    rolling = Rolling(memory)
    await rolling.want(1, 2)
    for _ in range(2):
        await rolling.made.pin(("m", 1), never)
    rolling.versions = (2,)
    assert await rolling.want(2) == {1: "ready", 2: "ready"}
    rolling.due.clear()
    rolling.made.unpin(("m", 2))
    assert not rolling.due.is_set()
    rolling.made.unpin(("m", 1))
    rolling.made.unpin(("m", 1))
    assert rolling.due.is_set()
    assert await rolling.want(2) == {2: "ready"}


async def test_a_version_that_the_catalog_drops_while_it_is_loaded_leaves_after_the_run_that_asked(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolling = Rolling(memory)
    await rolling.want(2)
    load = memory.load

    async def dropped_meanwhile(*given: Any, **more: Any) -> Any:
        rolling.versions = (2,)
        return await load(*given, **more)

    monkeypatch.setattr(memory, "load", dropped_meanwhile)
    await rolling.made.pin(("m", 1), never)
    assert await rolling.want(2) == {1: "ready", 2: "ready"}
    rolling.made.unpin(("m", 1))
    assert rolling.due.is_set()
    assert await rolling.want(2) == {2: "ready"}
    with pytest.raises(VersionDropped):
        await rolling.made.pin(("m", 1), never)


async def test_a_version_that_is_no_longer_got_stays_for_the_jobs_that_wait(memory: Memory) -> None:
    rolling = Rolling(memory, retire_s=60.0)
    await rolling.want(1)
    assert rolling.made.due_in_s() is None
    assert await rolling.want(2) == {1: "ready", 2: "ready"}
    left_s = rolling.made.due_in_s()
    assert left_s is not None
    assert 59 < left_s <= 60


async def test_what_does_not_fit_beside_the_old_version_says_so_and_is_loaded_after_it(memory: Memory) -> None:
    rolling = Rolling(memory, budget=60 * MIB)
    assert await rolling.want(1) == {1: "ready"}
    assert await rolling.want(2, 1) == {1: "ready", 2: "crowded"}
    assert await rolling.want(2) == {2: "ready"}
    assert memory.used_bytes == 40 * MIB


async def test_a_version_whose_load_failed_keeps_the_old_one_and_is_tried_when_published_again(memory: Memory) -> None:
    rolling = Rolling(memory)
    memory.refused.add(("m", 2))
    await rolling.want(1)
    for _ in range(2):
        assert await rolling.want(2, 1) == {1: "ready", 2: "failed"}
    rolling.made.forget()  # the runner died: why a load failed is known all the same
    assert await rolling.want(2, 1) == {1: "ready", 2: "failed"}
    with pytest.raises(NotServing):
        await rolling.made.pin(("m", 2), never)
    memory.refused.clear()
    rolling.made.retry_failed("m")
    assert rolling.reported[-1] == {1: "ready"}, "told before it is tried again"
    assert await rolling.want(2, 1) == {1: "ready", 2: "ready"}


async def test_a_worker_without_room_to_lay_a_version_out_fails_neither_it_nor_its_jobs(memory: Memory) -> None:
    rolling = Rolling(memory, retire_s=60.0)
    await rolling.want(1)
    memory.refused.add(("m", 2))
    memory.error = Unavailable("no room")
    with pytest.raises(Unavailable):
        await rolling.made.pin(("m", 2), never)
    assert rolling.states() == {1: "ready"}, "not failed, and no place is taken"
    assert await rolling.want(2, 3) == {1: "ready", 3: "ready"}, "it holds up no other"
    again_s = rolling.made.due_in_s()
    assert again_s is not None
    assert again_s < 60, "tried again before anything else is due"
    memory.refused.clear()
    assert (await rolling.want(2, 3))[2] == "ready"


async def test_a_version_there_is_no_room_to_lay_out_does_not_push_the_old_one_out(memory: Memory) -> None:
    rolling = Rolling(memory)
    await rolling.want(1)
    memory.refused.add(("m", 2))
    memory.error = Unavailable("no room")
    assert await rolling.want(2) == {1: "ready"}


@pytest.mark.parametrize("error", [LeaseLost("outside the device"), RunnerLost()])
async def test_a_runner_that_is_being_replaced_says_nothing_of_a_version(memory: Memory, error: Exception) -> None:
    rolling = Rolling(memory)
    await rolling.want(1)
    memory.refused.add(("m", 2))
    memory.error = error
    with pytest.raises(type(error)):
        await rolling.want(2, 1)
    assert rolling.states() == {1: "ready"}
    memory.refused.clear()
    assert await rolling.want(2, 1) == {1: "ready", 2: "ready"}


async def test_a_load_ahead_whose_runner_dies_as_it_ends_is_one_that_was_lost(memory: Memory) -> None:
    rolling = Rolling(memory)
    memory.gate = asyncio.Event()
    load = asyncio.create_task(rolling.want(1))
    await settled()
    memory.gate.set()
    rolling.made.forget()
    with pytest.raises(RunnerLost):
        await load
    assert rolling.states() == {}


async def test_what_two_runs_find_missing_is_loaded_once_and_stays_while_it_is_used(memory: Memory) -> None:
    made = residency(memory, {"a", "b", "c"})
    for _ in range(2):
        await made.pin(("a", 1), never)
    memory.gate = asyncio.Event()
    made.lost(("a", 1))
    made.unpin(("a", 1))
    again = asyncio.create_task(made.pin(("a", 1), never))
    await settled()
    made.lost(("a", 1))
    made.unpin(("a", 1))  # the second run's, while the first has it loaded again
    memory.gate.set()
    assert await again
    assert memory.loads == ["a", "a"]
    await made.pin(("b", 1), never)
    made.unpin(("b", 1))
    await made.pin(("c", 1), never)
    assert set(memory.loaded) == {("a", 1), ("c", 1)}, "what runs stays"


async def test_a_load_ahead_waits_for_a_run_that_may_take_runners_down_and_holds_up_no_other(memory: Memory) -> None:
    rolling = Rolling(memory)
    rolling.activity.suspect("a batch")
    load = asyncio.create_task(rolling.want(1))
    await settled()
    assert not memory.loaded
    await rolling.made.pin(("m", 2), never)
    assert set(memory.loaded) == {("m", 2)}, "a job's load waits for nothing"
    rolling.activity.trust("a batch")
    assert await load == {1: "ready", 2: "ready"}


@pytest.mark.parametrize("why", ["retired", "withdrawn"])
async def test_a_version_whose_run_begins_while_another_is_unloaded_stays(memory: Memory, why: str) -> None:
    rolling = Rolling(memory, budget=140 * MIB)
    used: list[Key] = []

    async def use() -> None:
        used.append(next(key for key in memory.loaded if key != ("m", 3)))
        await rolling.made.pin(used[0], never)

    await rolling.want(2, 1)
    memory.during_unload = use
    rolling.versions = (3,) if why == "withdrawn" else rolling.versions
    await rolling.want(3)
    assert set(memory.loaded) == {used[0], ("m", 3)}


async def test_loads_ahead_of_need_are_made_for_replacements_even_where_they_are_off(memory: Memory) -> None:
    rolling = Rolling(memory)
    assert await rolling.want(1, is_ahead=False) == {}
    await rolling.made.pin(("m", 1), never)
    rolling.made.unpin(("m", 1))
    assert await rolling.want(2, 1, is_ahead=False) == {1: "ready", 2: "ready"}


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.integers(0, 12)), min_size=1, max_size=16),
    st.fixed_dictionaries({name: st.integers(1, 130) for name in "abcdef"}),
)
def test_the_budget_is_kept_whenever_a_run_begins(acts: list[tuple[str, bool, int]], sizes: dict[str, int]) -> None:
    """Jobs and loads ahead of need at once; every size on the disk is 40 MiB, whatever is measured."""

    async def scene() -> None:
        memory = Memory()
        memory.sizes = {name: size * MIB for name, size in sizes.items()}
        made = residency(memory, set("abcdef"))

        async def act(name: str, is_job: bool, ticks: int) -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            if not is_job:
                await made.keep_warm([(name, 1)])
                return
            try:
                await made.pin((name, 1), never)
            except DoesNotFit:
                assert sizes[name] > 100
                return
            assert (name, 1) in memory.loaded
            assert memory.used_bytes <= 100 * MIB
            for _ in range(ticks):
                await asyncio.sleep(0)
            made.unpin((name, 1))

        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            for name, is_job, ticks in acts:
                group.create_task(act(name, is_job, ticks))
        assert memory.used_bytes <= 100 * MIB

    asyncio.run(scene())
