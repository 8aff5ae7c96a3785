"""A dictionary with a bound: what was used least recently leaves. For whatever is kept per model ever seen."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """At most ``limit`` entries. Writing an entry is a use of it, reading is none."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def get(self, key: K) -> V | None:
        """The entry, None where there is none (any more)."""
        return self._entries.get(key)

    def discard(self, key: K) -> None:
        """Remove an entry, if it is there."""
        self._entries.pop(key, None)

    def newest_first(self) -> Iterator[tuple[K, V]]:
        """All entries, the most recently used first."""
        return reversed(self._entries.items())
