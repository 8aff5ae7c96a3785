"""Who is woken by an item that comes."""

import asyncio
from collections.abc import Callable

import pytest

from gateway_plugin.queues.arrivals import Arrivals
from gateway_plugin.queues.reading import patience_s
from signalbox.wire import names

EVENT = "evt.q.mine.source.lo."


class Line:
    """A connection to NATS of which only subscriptions are there."""

    def __init__(self) -> None:
        self.connection = self
        self.open: dict[int, tuple[str, Callable[[bytes, bytes, bytes, bytes], None]]] = {}
        self.reconnect: list[Callable[[], None]] = []
        self._count = 0

    def listen(self, subject: str, callback: Callable[[bytes, bytes, bytes, bytes], None]) -> int:
        self._count += 1
        self.open[self._count] = (subject, callback)
        return self._count

    def unlisten(self, sid: int) -> None:
        self.open.pop(sid, None)

    async def flush(self) -> None: ...

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        self.reconnect.append(callback)

    def come(self, request_id: str = "-") -> None:
        """An item was stored."""
        for _, callback in list(self.open.values()):
            callback((EVENT + names.token(request_id)).encode(), b"", b"", b"")


@pytest.fixture
async def line() -> Line:
    return Line()


@pytest.fixture
async def arrivals(line: Line) -> Arrivals:
    return Arrivals(line)  # type: ignore[arg-type]  # a stand-in


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_all_who_wait_for_a_side_share_one_subscription(arrivals: Arrivals, line: Line) -> None:
    async with arrivals.waiting("mine", "source"), arrivals.waiting("mine", "source"):
        assert [subject for subject, _ in line.open.values()] == ["evt.q.mine.source.*.*"]
        async with arrivals.waiting("mine", "sink"):
            assert len(line.open) == 2
    assert not line.open


async def test_an_item_wakes_one_who_takes_it_away_and_all_who_only_look(arrivals: Arrivals, line: Line) -> None:
    async with (
        arrivals.waiting("mine", "source", takes_any=True) as first,
        arrivals.waiting("mine", "source", takes_any=True) as second,
        arrivals.waiting("mine", "source") as third,
        arrivals.waiting("mine", "source") as fourth,
    ):
        line.come()
        assert [one.is_woken for one in (first, second, third, fourth)] == [True, False, True, True]
        line.come()
        assert second.is_woken


async def test_who_waits_for_one_request_is_woken_by_its_item_only(arrivals: Arrivals, line: Line) -> None:
    async with arrivals.waiting("mine", "source", request_id="a.b") as waiter:
        line.come("other")
        assert not await waiter.wait(now())
        line.come("a.b")
        assert await waiter.wait(now())


async def test_one_who_leaves_before_it_has_looked_passes_its_item_on(arrivals: Arrivals, line: Line) -> None:
    async with arrivals.waiting("mine", "source", takes_any=True) as second:
        async with arrivals.waiting("mine", "source", takes_any=True) as third:
            pass
        line.come()
        assert second.is_woken
        async with arrivals.waiting("mine", "source", takes_any=True) as fourth:
            line.come()
            assert await fourth.wait(now())
            assert await second.wait(now())
            second.found()
        assert second.is_woken, "the fourth has not said that it found its item"
        assert not third.is_woken


async def test_one_who_found_nothing_stands_in_line_again(arrivals: Arrivals, line: Line) -> None:
    async with arrivals.waiting("mine", "source", takes_any=True) as waiter:
        for _ in range(2):
            line.come()
            assert await waiter.wait(now())
        assert not await waiter.wait(now())
        line.come()
        assert waiter.is_woken


async def test_a_reconnect_wakes_all_as_items_may_have_come_meanwhile(arrivals: Arrivals, line: Line) -> None:
    async with (
        arrivals.waiting("mine", "source", takes_any=True) as first,
        arrivals.waiting("mine", "source", request_id="a") as second,
    ):
        for callback in line.reconnect:
            callback()
        assert first.is_woken
        assert second.is_woken


@pytest.mark.parametrize(("timeout_s", "expected"), [(0.0, 0.0), (1.0, 0.9), (5.0, 4.5), (60.0, 59.5), (3600.0, 59.5)])
def test_an_empty_answer_comes_a_little_before_the_time_is_up(timeout_s: float, expected: float) -> None:
    assert patience_s(timeout_s) == pytest.approx(expected)
