"""Evicts versions from the disk cache that the catalog has no more: by its changes, and what it dropped meanwhile.

A version leaves some seconds after it was dropped, so that a bucket that is lost and published again empties no cache,
and a deletion that is undone at once costs no fetch.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background
from workers.diskcache.cachedversion import CachedVersion
from workers.diskcache.contents import InThread
from workers.diskcache.place import Key
from workers.diskcache.room import Evicted, Room

_PAUSE_S: Final = 1.0
"""Between two looks at the cache, where the catalog changes again and again."""


class DroppedVersions:
    """Those of one host, as one of its workers evicts them. is_dropped: whether the catalog has no such version.

    on_evicted: told what has left. after_s: since it was dropped.
    """

    def __init__(
        self,
        room: Room,
        in_thread: InThread,
        *,
        is_dropped: Callable[[str, Key], bool],
        on_evicted: Callable[[Sequence[Evicted]], None],
        after_s: float,
    ) -> None:
        self._room = room
        self._in_thread = in_thread
        self._is_dropped = is_dropped
        self._on_evicted = on_evicted
        self._after_s = after_s
        self._leaving: set[tuple[str, Key]] = set()
        self._tasks = Background()
        self.changed = asyncio.Event()
        """Set when the catalog has changed."""

    async def keep(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self.changed.wait()
                self.changed.clear()
                try:
                    await self._look()
                except (SignalboxError, OSError) as error:
                    log.warning("cache.not_looked_through", why=str(error))
                await asyncio.sleep(_PAUSE_S)
        finally:
            await self._tasks.cancel()

    async def _look(self) -> None:
        for one in await self._in_thread(self._room.known):
            if self._is_gone(one) and (one.repository, one.key) not in self._leaving:
                self._leaving.add((one.repository, one.key))
                self._tasks.start(self._evict(one), name="evict a version that the catalog dropped")

    async def _evict(self, one: CachedVersion) -> None:
        """Evict it once nobody uses it, unless the catalog has it again."""
        try:
            await asyncio.sleep(self._after_s)
            while self._is_gone(one):
                if await self._in_thread(lambda: self._room.discard(one, "dropped")):
                    self._on_evicted([Evicted(one.key, "dropped")])
                    return
                await one.freed()
        except OSError as error:
            log.warning("cache.not_evicted", model=one.key[0], version=one.key[1], why=str(error))
        finally:
            self._leaving.discard((one.repository, one.key))

    def _is_gone(self, one: CachedVersion) -> bool:
        return self._is_dropped(one.repository, one.key)
