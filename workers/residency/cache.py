"""The cache of model versions on the device: which fit, and which leaves. Bytes and uses only: no runner, no I/O.

The cache has a budget. What is in use (a run uses it, or it is being loaded) stays; of the rest
:mod:`signalbox.wire.eviction` says what leaves first. What a version takes is known when its load has ended: room is
made for what is expected, the true size is booked by :meth:`ModelCache.measure`, and the budget may be passed from then
until what is in excess has left. The version is not ready, and nothing begins a run, in between.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from signalbox.program.errors import OutOfMemory
from signalbox.wire import eviction
from signalbox.wire.eviction import Loaded, ResidencyUse
from signalbox.wire.shadows import ShadowFigures
from signalbox.wire.workerdocs import Joining, Residency
from workers.statistics.uses import Uses

Key = tuple[str, int]
"""Model name and version."""


class DoesNotFit(OutOfMemory):
    """The version is too large for the device, whatever else leaves it. No job is at fault."""


@dataclass(slots=True)
class CacheEntry:
    """One version in the cache. pins: users that need it to stay. loaded_s: when its load began, on the clock.

    return_s: what it took to have it here, its fetch included.
    """

    size_bytes: int
    state: str = "loading"
    error: str = ""
    pins: int = 0
    loaded_s: float = 0.0
    return_s: float = 0.0


class Free(NamedTuple):
    """Room for so many bytes and so many versions."""

    size_bytes: int
    versions: int

    def fits(self, size_bytes: int, versions: int = 1) -> bool:
        """Whether that much has room."""
        return self.size_bytes >= size_bytes and self.versions >= versions

    def after(self, size_bytes: int) -> "Free":
        """What is free when a version of that size has left."""
        return Free(self.size_bytes + size_bytes, self.versions + 1)


class ModelCache:
    """The loaded versions of one device, at most ``budget_bytes`` together. clock: seconds that only rise.

    most: versions that may be loaded at once, 0 = as many as fit. pin_bytes: most that pinned versions keep.
    """

    def __init__(
        self, budget_bytes: int, clock: Callable[[], float] = time.monotonic, *, most: int = 0, pin_bytes: int = 0
    ) -> None:
        self.budget_bytes = budget_bytes
        self.pin_bytes = pin_bytes
        self._most = most
        self.pinned: Callable[[], Sequence[Key]] = tuple
        """What operators have pinned, those first that were pinned first."""
        self.used_bytes = 0
        """Bytes of everything that is loaded or being loaded."""
        self._entries: dict[Key, CacheEntry] = {}
        self._uses = Uses()
        self._clock = clock

    def __contains__(self, key: Key) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.state == "ready"

    def has_room(self, size_bytes: int, *, is_waited: Callable[[Key], bool]) -> bool:
        """Whether ``size_bytes`` more fit if nothing leaves but what is idle and no job waits for."""
        return self._free().fits(size_bytes) or self._free_without(lambda key: not is_waited(key)).fits(size_bytes)

    def fits_freely(self, size_bytes: int, *, is_spare: Callable[[Key], bool]) -> bool:
        """Whether ``size_bytes`` more fit if nothing leaves but what is idle and spare."""
        return self._free().fits(size_bytes) or self._free_without(is_spare).fits(size_bytes)

    def kept(self) -> set[Key]:
        """The versions here that stay since they are pinned: in turn, as far as pins may take the memory."""
        found: set[Key] = set()
        left = self.pin_bytes
        for key in self.pinned():
            left -= self.size_bytes(key)
            if left < 0:
                break
            if key in self:
                found.add(key)
        return found

    def _free(self) -> Free:
        """What is free now."""
        if not self._most:
            return Free(self.budget_bytes - self.used_bytes, 1)
        loaded = sum(entry.state in {"loading", "ready"} for entry in self._entries.values())
        return Free(self.budget_bytes - self.used_bytes, self._most - loaded)

    def _free_without(self, leaves: Callable[[Key], bool]) -> Free:
        """What is free where those of the idle ones have left that may."""
        free, kept = self._free(), self.kept()
        for key in self.idle():
            if key not in kept and leaves(key):
                free = free.after(self._entries[key].size_bytes)
        return free

    def evictions(
        self,
        size_bytes: int,
        *,
        is_spare: Callable[[Key], bool] = lambda _: False,
        is_waited: Callable[[Key], bool] = lambda _: False,
    ) -> list[Key]:
        """What must leave before ``size_bytes`` more fit, in the order of :func:`signalbox.wire.eviction.order`.

        Raises :class:`DoesNotFit` where it does not fit even then: the rest is pinned or the
        budget is too small.
        """
        leaving, free = self._leaving(size_bytes, is_spare, is_waited, versions=1)
        if free.size_bytes >= size_bytes and not free.fits(size_bytes):
            raise DoesNotFit(
                f"{self._most} versions are in use or stay; no more may be in memory at once. Raise"
                " SIGNALBOX_WORKER_MOST_VERSIONS or serve the model elsewhere.",
                needed=size_bytes,
                budget=self.budget_bytes,
            )
        if free.size_bytes < size_bytes:
            raise DoesNotFit(
                f"The model needs {size_bytes} bytes; {max(0, free.size_bytes)} of {self.budget_bytes} can be"
                " made free. Raise the worker's memory budget or serve fewer models on it.",
                needed=size_bytes,
                budget=self.budget_bytes,
            )
        return leaving

    @property
    def is_over(self) -> bool:
        """Whether more is loaded than the budget allows: no run may begin."""
        return self.used_bytes > self.budget_bytes

    def excess(
        self,
        *,
        is_spare: Callable[[Key], bool] = lambda _: False,
        is_waited: Callable[[Key], bool] = lambda _: False,
    ) -> list[Key]:
        """What leaves so that the budget is kept, in the order of :meth:`evictions`; all that is idle may not do."""
        return self._leaving(0, is_spare, is_waited, versions=0)[0]

    def _leaving(
        self, size_bytes: int, is_spare: Callable[[Key], bool], is_waited: Callable[[Key], bool], *, versions: int
    ) -> tuple[list[Key], Free]:
        """Idle versions to unload for ``size_bytes``, as far as there are any, and what is free then."""
        free = self._free()
        leaving: list[Key] = []
        if free.fits(size_bytes, versions):
            return leaving, free  # what may leave is not put in order for nothing: there may be a thousand
        for key in self.leaving_order(is_spare, is_waited):
            if free.fits(size_bytes, versions):
                break
            free = free.after(self._entries[key].size_bytes)
            leaving.append(key)
        return leaving, free

    def leaving_order(self, is_spare: Callable[[Key], bool], is_waited: Callable[[Key], bool]) -> list[Key]:
        """Idle versions; what leaves first is first."""
        return [one.key for one in eviction.order(self._loaded(is_spare, is_waited))]

    def _loaded(self, is_spare: Callable[[Key], bool], is_waited: Callable[[Key], bool]) -> Iterator[Loaded]:
        now_s, kept = self._clock(), self.kept()
        for key, entry in self._entries.items():
            if entry.state == "ready" and not entry.pins:
                idle_s, before_s = self._ages(key, entry, now_s)
                yield Loaded(
                    key,
                    entry.size_bytes,
                    idle_s=idle_s,
                    before_s=before_s,
                    return_s=entry.return_s,
                    is_spare=is_spare(key),
                    is_pinned=key in kept,
                    is_waited=is_waited(key),
                )

    def _ages(self, key: Key, entry: CacheEntry, now_s: float) -> tuple[float, float | None]:
        """Since the last use, or the load where there was none since, and since the use before it."""
        use = self._uses.of(key)
        if use is None:
            return now_s - entry.loaded_s, None
        if use.last_s < entry.loaded_s:  # it has come back for a use that has yet to begin
            return now_s - entry.loaded_s, now_s - use.burst_s
        return now_s - use.last_s, None if use.before_s is None else now_s - use.before_s

    def reserve(self, key: Key, size_bytes: int) -> None:
        """Note that a load begins; its entry is pinned until :meth:`mark_ready` or :meth:`fail`."""
        self._put(key, CacheEntry(size_bytes, pins=1, loaded_s=self._clock()))

    def came_in(self, key: Key, return_s: float) -> None:
        """Note what it took to have a version here. Harmless after :meth:`clear`."""
        if (entry := self._entries.get(key)) is not None:
            entry.return_s = return_s

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
        self._put(key, CacheEntry(0, state="failed", error=error))

    def drop(self, key: Key) -> None:
        """Forget a version: it is no longer loaded."""
        if (entry := self._entries.pop(key, None)) is not None:
            self.used_bytes -= entry.size_bytes

    def clear(self) -> None:
        """Forget all versions, as the runner is gone; why loads failed is kept."""
        for key in [key for key, entry in self._entries.items() if entry.state != "failed"]:
            self.drop(key)

    def pin(self, key: Key, *, is_asked: bool = True) -> bool:
        """Note that a run begins on a version; is_asked: for somebody.

        False where none may begin: the version is not ready, or more is loaded than the budget allows.
        """
        entry = self._entries.get(key)
        if entry is None or entry.state != "ready" or self.is_over:
            return False
        entry.pins += 1
        if is_asked:
            self._uses.used(key, self._clock())
        return True

    def unpin(self, key: Key) -> None:
        """Note that a run has ended. Harmless after :meth:`clear`, also where the version is being loaded again."""
        entry = self._entries.get(key)
        if entry is not None and entry.state == "ready" and entry.pins:
            entry.pins -= 1
            self._uses.ended(key, self._clock())

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
        shadow: Callable[[Key], ShadowFigures | None] = lambda _: None,
    ) -> tuple[Residency, ...]:
        """What the presence document tells, in order of name and version."""
        now_s, kept = self._clock(), self.kept()
        return tuple(
            Residency(
                model=key[0],
                version=key[1],
                size_bytes=entry.size_bytes,
                error=entry.error,
                state="spare" if entry.state == "ready" and is_spare(key) else entry.state,
                max_rows=max_rows(key),
                joining=joining(key),
                shadow=shadow(key),
                use=self._residency_use(key, entry, now_s, is_pinned=key in kept) if entry.state == "ready" else None,
            )
            for key, entry in sorted(self._entries.items())
        )

    def _residency_use(self, key: Key, entry: CacheEntry, now_s: float, *, is_pinned: bool) -> ResidencyUse:
        idle_s, before_s = self._ages(key, entry, now_s)
        return ResidencyUse(
            idle_s=round(idle_s, 1),
            before_s=None if before_s is None else round(before_s, 1),
            return_s=round(entry.return_s, 2),
            is_used=bool(entry.pins),
            is_pinned=is_pinned,
        )
