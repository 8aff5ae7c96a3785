"""Takes items from the head of a side for all readers of this program together, so that they do not race for each.

Each round reads and removes as many as all who ask then want, and shares them out in the order of asking. Programs race
with one another all the same; the server says who was first.
"""

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Sequence
from typing import Final

from gateway_plugin.queues import removal
from gateway_plugin.queues.items import Item, item_of
from gateway_plugin.queues.scanning import Place, head
from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.tasks import Background

MOST_ITEMS: Final = 1000
"""In one answer, and in one round."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""In both, but for the first item."""


class _Demand:
    __slots__ = ("answer", "length")

    def __init__(self, length: int) -> None:
        self.length = length
        self.answer: Future[list[Item]] = get_running_loop().create_future()


class _Line:
    """Who wants items of one place. index: below it there is none."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.demands: deque[_Demand] = deque()
        self.index = 0

    def of_round(self) -> list[_Demand]:
        """The first ones who still wait, up to what a round takes."""
        chosen: list[_Demand] = []
        total = 0
        while self.demands and (not chosen or total + self.demands[0].length <= MOST_ITEMS):
            demand = self.demands.popleft()
            if not demand.answer.done():
                chosen.append(demand)
                total += demand.length
        return chosen


class Taking:
    """Takes items from the heads of all sides. bus: to the account of the queue service."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lines: dict[str, _Line] = {}
        self._rounds = Background()

    async def close(self) -> None:
        """Take no more; who still waits gets :class:`Unavailable`. Idempotent."""
        await self._rounds.cancel()

    async def take(self, place: Place, length: int) -> list[Item]:
        """The first items, removed for all groups; empty where there are none. Raises :class:`Unavailable`.

        A caller that is cancelled leaves its items to the others; where nobody else asks they are gone.
        """
        demand = _Demand(max(1, min(length, MOST_ITEMS)))
        line = self._lines.get(place.subject)
        if line is None:
            line = self._lines[place.subject] = _Line(place)
            self._rounds.start(self._serve(line), name="take items")
        line.demands.append(demand)
        return await demand.answer

    async def _serve(self, line: _Line) -> None:
        """Rounds until nobody wants more."""
        chosen: list[_Demand] = []
        try:
            while chosen := line.of_round():
                try:
                    await self._round(line, chosen)
                except SignalboxError as error:
                    _fail(chosen, error)
        finally:
            del self._lines[line.place.subject]
            _fail([*chosen, *line.demands], Unavailable("This gateway stops; nothing was taken.", retry_after_s=1.0))

    async def _round(self, line: _Line, chosen: Sequence[_Demand]) -> None:
        total = sum(demand.length for demand in chosen)
        found = [item_of(one) for one in await head(self._bus, line.place, line.index, total, MOST_BYTES)]
        removed = await removal.remove(self._bus, line.place.stream, [item.index for item in found])
        items = deque(item for item in found if item.index in removed)
        again: list[_Demand] = []
        for demand in chosen:
            share = _share(items, demand)
            if share or not found:
                _answer(demand, share)
            else:
                again.append(demand)
        while items and line.demands:  # of a caller who has gone meanwhile
            demand = line.demands.popleft()
            _answer(demand, _share(items, demand))
        line.demands.extendleft(reversed(again))
        # Where all were removed by others nothing is left below; what came meanwhile is above.
        line.index = found[-1].index + 1 if found and not removed else 0


def _share(items: deque[Item], demand: _Demand) -> list[Item]:
    return [items.popleft() for _ in range(min(len(items), demand.length))] if _waits(demand) else []


def _waits(demand: _Demand) -> bool:
    return not demand.answer.done()


def _answer(demand: _Demand, items: list[Item]) -> None:
    if _waits(demand):
        demand.answer.set_result(items)


def _fail(demands: Sequence[_Demand], error: SignalboxError) -> None:
    """Give each its own exception: one shared would collect all their tracebacks."""
    for demand in demands:
        if _waits(demand):
            again = type(error)(error.public_message, retry_after_s=error.retry_after_s, **error.facts)
            demand.answer.set_exception(again)
