"""The LRU cache of model versions on the device: which fit, and which leaves. Bytes only: no runner, no clock.

The cache has a budget. What is pinned (a run uses it, or it is being loaded) stays; of the rest the
least recently used leaves first. What a version takes is known when its load has ended: room is made for
what is expected, the true size is booked by :meth:`ModelCache.measure`, and the budget may be passed from then until
what is in excess has left. The version is not ready, and nothing begins a run, in between.
"""

from collections.abc import Callable
from dataclasses import dataclass

from signalbox.program.errors import OutOfMemory
from signalbox.wire.messages import Joining, Residency

Key = tuple[str, int]
"""Model name and version."""


class DoesNotFit(OutOfMemory):
    """The version is too large for the device, whatever else leaves it. No job is at fault."""


@dataclass(slots=True)
class CacheEntry:
    """One version in the cache. pins: users that need it to stay. used: rises with every use."""

    size_bytes: int
    state: str = "loading"
    error: str = ""
    pins: int = 0
    used: int = 0


class ModelCache:
    """The loaded versions of one device, at most ``budget_bytes`` together."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        """Bytes of everything that is loaded or being loaded."""
        self._entries: dict[Key, CacheEntry] = {}
        self._clock = 0

    def __contains__(self, key: Key) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.state == "ready"

    def evictions(self, size_bytes: int, *, is_spare: Callable[[Key], bool] = lambda _: False) -> list[Key]:
        """What must leave before ``size_bytes`` more fit: what is spare first, then the least recently used.

        Raises :class:`DoesNotFit` where it does not fit even then: the rest is pinned or the
        budget is too small.
        """
        leaving, free = self._leaving(size_bytes, is_spare)
        if free < size_bytes:
            raise DoesNotFit(
                f"The model needs {size_bytes} bytes; {max(0, free)} of {self.budget_bytes} can be"
                " made free. Raise the worker's memory budget or entry fewer models on it.",
                needed=size_bytes,
                budget=self.budget_bytes,
            )
        return leaving

    @property
    def is_over(self) -> bool:
        """Whether more is loaded than the budget allows: no run may begin."""
        return self.used_bytes > self.budget_bytes

    def excess(self, *, is_spare: Callable[[Key], bool] = lambda _: False) -> list[Key]:
        """What leaves so that the budget is kept, in the order of :meth:`evictions`; all that is idle may not do."""
        return self._leaving(0, is_spare)[0]

    def _leaving(self, size_bytes: int, is_spare: Callable[[Key], bool]) -> tuple[list[Key], int]:
        """Idle versions to unload for ``size_bytes``, as far as there are any, and the bytes that are free then."""
        free = self.budget_bytes - self.used_bytes
        leaving: list[Key] = []
        if free >= size_bytes:
            return leaving, free  # what may leave is not put in order for nothing: there may be a thousand
        for key in sorted(self.idle(), key=lambda key: (not is_spare(key), self._entries[key].used)):
            if free >= size_bytes:
                break
            free += self._entries[key].size_bytes
            leaving.append(key)
        return leaving, free

    def reserve(self, key: Key, size_bytes: int) -> None:
        """Note that a load begins; its entry is pinned until :meth:`mark_ready` or :meth:`fail`."""
        self._clock += 1
        self._put(key, CacheEntry(size_bytes, pins=1, used=self._clock))

    def measure(self, key: Key, size_bytes: int) -> None:
        """Book the ``size_bytes`` that a load took, which may pass the budget.

        Harmless after :meth:`clear`.
        """
        entry = self._entries.get(key)
        if entry is not None:
            self.used_bytes += size_bytes - entry.size_bytes
            entry.size_bytes = size_bytes

    def mark_ready(self, key: Key) -> None:
        """Let runs use a version whose load has ended. Harmless after :meth:`clear`."""
        entry = self._entries.get(key)
        if entry is not None and entry.state == "loading":
            entry.state = "ready"
            entry.pins -= 1

    def crowd(self, key: Key) -> None:
        """Note that a version does not fit beside those that are here; none leaves before a job needs it."""
        if key not in self._entries:
            self._put(key, CacheEntry(0, state="crowded"))

    def uncrowd(self) -> None:
        """Forget which versions did not fit: they may fit by now."""
        for key in [key for key, entry in self._entries.items() if entry.state == "crowded"]:
            self.drop(key)

    def fail(self, key: Key, error: str) -> None:
        """Note that a load failed; the reason is kept until the next try, the bytes are free."""
        self._clock += 1
        self._put(key, CacheEntry(0, state="failed", error=error, used=self._clock))

    def drop(self, key: Key) -> None:
        """Forget a version: it is no longer loaded."""
        if (entry := self._entries.pop(key, None)) is not None:
            self.used_bytes -= entry.size_bytes

    def clear(self) -> None:
        """Forget all versions, as the runner is gone; why loads failed is kept."""
        for key in [key for key, entry in self._entries.items() if entry.state != "failed"]:
            self.drop(key)

    def pin(self, key: Key) -> bool:
        """Note that a run begins on a version, which is now the most recently used.

        False where none may begin: the version is not ready, or more is loaded than the budget allows.
        """
        entry = self._entries.get(key)
        if entry is None or entry.state != "ready" or self.is_over:
            return False
        self._clock += 1
        entry.pins += 1
        entry.used = self._clock
        return True

    def unpin(self, key: Key) -> None:
        """Note that a run has ended. Harmless after :meth:`clear`, also where the version is being loaded again."""
        entry = self._entries.get(key)
        if entry is not None and entry.state == "ready" and entry.pins:
            entry.pins -= 1

    @property
    def is_pinned(self) -> bool:
        """Whether a version is in use, so that room may come."""
        return any(entry.pins for entry in self._entries.values())

    def idle(self) -> list[Key]:
        """Versions that are ready and not in use."""
        return list(filter(self.is_idle, self._entries))

    def ready(self) -> list[Key]:
        """Versions that are ready, in use or not."""
        return [key for key, entry in self._entries.items() if entry.state == "ready"]

    def is_idle(self, key: Key) -> bool:
        """Whether a version is ready and not in use."""
        entry = self._entries.get(key)
        return entry is not None and entry.state == "ready" and not entry.pins

    def _put(self, key: Key, entry: CacheEntry) -> None:
        self.drop(key)
        self._entries[key] = entry
        self.used_bytes += entry.size_bytes

    def state(self, key: Key) -> str:
        """The state of a version as presence says it; empty where it is not known."""
        entry = self._entries.get(key)
        return entry.state if entry is not None else ""

    def failure(self, key: Key) -> str:
        """Why the last load failed, empty if it did not."""
        entry = self._entries.get(key)
        return entry.error if entry is not None else ""

    def failures(self) -> list[Key]:
        """Versions whose last load failed."""
        return [key for key, entry in self._entries.items() if entry.state == "failed"]

    def size_bytes(self, key: Key) -> int:
        """Bytes a version takes here, 0 where it is not."""
        entry = self._entries.get(key)
        return entry.size_bytes if entry is not None else 0

    def residencies(
        self,
        *,
        is_spare: Callable[[Key], bool] = lambda _: False,
        max_rows: Callable[[Key], int] = lambda _: 0,
        joining: Callable[[Key], Joining | None] = lambda _: None,
    ) -> tuple[Residency, ...]:
        """What the presence document tells, in order of name and version."""
        return tuple(
            Residency(
                model=key[0],
                version=key[1],
                size_bytes=entry.size_bytes,
                error=entry.error,
                state="spare" if entry.state == "ready" and is_spare(key) else entry.state,
                max_rows=max_rows(key),
                joining=joining(key),
            )
            for key, entry in sorted(self._entries.items())
        )
