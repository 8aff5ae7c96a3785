"""Which watch gets the next item: the one with the most free slots. No I/O."""

import heapq
from collections.abc import Iterator
from itertools import count

from gateway_plugin.queues.items import Item
from gateway_plugin.queues.watching.openwatch import OpenWatch


class Sharing:
    """The watches of one group in this plugin. free: slots of all of them.

    :meth:`note` must be called whenever what a watch has free may have changed.
    """

    def __init__(self) -> None:
        self.free = 0
        self._watches: dict[OpenWatch, None] = {}
        self._heap: list[tuple[int, int, OpenWatch]] = []
        self._turn = count()

    def __iter__(self) -> Iterator[OpenWatch]:
        return iter(list(self._watches))

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, watch: OpenWatch) -> None:
        """One more watch."""
        self._watches[watch] = None
        self.note(watch)

    def remove(self, watch: OpenWatch) -> None:
        """Give a watch nothing more. Idempotent."""
        if watch in self._watches:
            del self._watches[watch]
            self.free -= watch.noted
            watch.noted = 0

    def note(self, watch: OpenWatch) -> None:
        """Count what it has free now."""
        slots = watch.slots if watch in self._watches else 0
        if slots == watch.noted:
            return
        self.free += slots - watch.noted
        watch.noted = slots
        watch.turn = next(self._turn)
        if slots:
            heapq.heappush(self._heap, (-slots, watch.turn, watch))
            if len(self._heap) > 4 * len(self._watches) + 64:
                self._heap = [(-one.noted, one.turn, one) for one in self._watches if one.noted]
                heapq.heapify(self._heap)

    def is_wanted(self, item: Item) -> bool:
        """Whether any watch asks for an item with its tags."""
        return any(_matches(item, watch) for watch in self._watches)

    def find(self, item: Item) -> OpenWatch | None:
        """The watch with the most free slots that takes it; of several the one that has waited longest."""
        passed: list[tuple[int, int, OpenWatch]] = []
        found = None
        while self._heap and found is None:
            entry = heapq.heappop(self._heap)
            watch = entry[2]
            if watch not in self._watches or entry[1] != watch.turn:
                continue  # it has had another number of free slots since
            passed.append(entry)
            if _matches(item, watch):
                found = watch
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found


def _matches(item: Item, watch: OpenWatch) -> bool:
    return item.matches(watch.watch.tags)
