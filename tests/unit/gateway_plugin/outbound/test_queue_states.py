"""What is told of a queue fits its document, changes when something did, and acts on many items end in time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_plugin.outbound.queues import acts, gauges, making, standing
from gateway_plugin.outbound.queues.acts import QueueActs
from signalbox.bus.client import Bus
from signalbox.bus.storage import Streams
from signalbox.bus.table import Table
from signalbox.program import metrics
from signalbox.program.errors import QueueFull
from signalbox.program.settings import Wire
from signalbox.wire import names, queuenames
from signalbox.wire.assets import KEPT_MAX_BYTES
from signalbox.wire.messages import encode
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import SIDES
from signalbox.wire.queues import GroupState, Queue, QueueDone, QueueMark, QueueState, SideState, WatchState

WATCH = WatchState(queue="q", side="source", group="eas", uid="u" * 64, tags={"key": "v" * 256})


def test_a_state_of_very_many_watches_and_groups_fits_into_its_bucket() -> None:
    side = SideState(length=5, groups=tuple(GroupState(name=f"{number:064}") for number in range(2000)))
    state = QueueState(state="running", source=side, sink=side, watches=(WATCH,) * 5000)
    bounded = standing._bounded(state)
    assert len(encode(bounded)) < KEPT_MAX_BYTES
    assert (bounded.source.length, len(bounded.watches) > 10, len(bounded.source.groups) > 10) == (5, True, True)
    small = replace(state, source=SideState(), sink=SideState(), watches=(WATCH,) * 3)
    assert standing._bounded(small) == small


@pytest.mark.parametrize(("idle_s", "shown"), [(0.0, 0.0), (9.9, 0.0), (12.0, 10.0), (599.0, 60.0), (1e6, 3600.0)])
def test_the_idle_time_of_a_watch_is_told_in_steps(idle_s: float, shown: float) -> None:
    assert standing._coarse(idle_s) == shown


def test_dead_items_are_counted_by_their_side() -> None:
    items = {queuenames.rear_item("a.b", "source", str(number)): 1 for number in range(3)}
    items |= {queuenames.rear_item("a.b", "sink"): 4}
    assert standing._by_side(items) == {
        queuenames.rear_items("a.b", "source"): 3,
        queuenames.rear_items("a.b", "sink"): 4,
    }


@pytest.mark.parametrize("name", ["a", "a.b", "a_b", "source", "Q_x", "ü"])
def test_a_stream_says_of_which_queue_it_is(name: str) -> None:
    assert {making._key_of(queuenames.queue_stream(name, side)) for side in SIDES} == {names.token(name)}


@pytest.mark.parametrize("stream", ["REAR", "JOBS", "Q_a", "Q_a_other", "KV_queues", "x_source"])
def test_other_streams_are_of_no_queue(stream: str) -> None:
    assert making._key_of(stream) is None


def test_where_models_share_one_series_it_has_what_waits_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges.BACKLOG, "is_joined", True)
    try:
        gauges.show_backlog(["c"], {"a": 3, "b": 4})
        told = metrics.REGISTRY.get_sample_value("signalbox_service_backlog", {"model": metrics.ALL_MODELS})
        assert told == 7
    finally:
        gauges.forget_all()


async def acted(piece: Callable[[int], Awaitable[int]], most: int) -> QueueDone:
    bus = Bus(Wire(), "outbound")
    table, marks = Table(bus, Bucket.QUEUES, Queue), Table(bus, Bucket.QUEUE_MARKS, QueueMark)
    return await QueueActs(bus, bus, table, marks)._in_pieces(piece, most)


class Pile:
    """Items that are taken a piece at a time."""

    def __init__(self, items: int) -> None:
        self.items = items
        self.asked: list[int] = []

    async def take(self, most: int) -> int:
        self.asked.append(most)
        taken = min(most, self.items)
        self.items -= taken
        return taken


async def test_an_act_ends_with_as_many_as_were_asked_for_or_with_the_last_there_is() -> None:
    pile = Pile(1000)
    assert await acted(pile.take, 250) == QueueDone(items=250)
    assert (pile.asked, pile.items) == ([100, 100, 50], 750)
    assert await acted(Pile(130).take, 250) == QueueDone(items=130)


async def test_an_act_that_takes_long_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "ACT_S", 0.0)
    assert await acted(Pile(1000).take, 250) == QueueDone(items=100, error="150 items are left; ask again.")
    assert await acted(Pile(1000).take, 100) == QueueDone(items=100)


async def test_an_act_that_fails_says_how_many_were_done_before() -> None:
    pile = Pile(1000)

    async def fails_at_last(most: int) -> int:
        if await pile.take(most) and pile.items < 850:
            raise QueueFull("full", done=7)
        return most

    with pytest.raises(QueueFull) as raised:
        await acted(fails_at_last, 500)
    assert raised.value.facts["done"] == 107


def test_late_replicas_of_all_queues_are_one_number_beside_that_of_dead_items() -> None:
    def told(of: str) -> float | None:
        return metrics.REGISTRY.get_sample_value("signalbox_queues_late_replicas", {"of": of})

    of_three = {"cluster": {"replicas": [{"current": True}, {"current": False, "lag": 7}]}}
    of_dead = {"cluster": {"replicas": [{"current": True}, {"current": True}]}}
    infos: dict[str, dict[str, Any]] = {"Q_A_source": of_three, "Q_A_sink": of_three, "REAR": of_dead}
    gauges.show_late(Streams(infos, frozenset({"Q_B_source"})))
    assert (told("queues"), told("rear")) == (3.0, 0.0)
    gauges.forget_all()
    assert (told("queues"), told("rear")) == (None, None)
