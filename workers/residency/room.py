"""Room in the device's memory: what is idle is unloaded for a load, in the order of :mod:`signalbox.wire.eviction`.

What is in use stays until its run has ended; whoever needs its room waits for that.
"""

import asyncio
from collections.abc import Callable

from signalbox.program import log
from workers.diskcache.place import LocalFiles
from workers.residency.cache import DoesNotFit, Key, ModelCache
from workers.runner.link import RunnerLink


class Room:
    """Unloads versions. is_waited: whether jobs that may begin wait for a version that is ready. changed: is set when
    presence should tell of it.
    """

    def __init__(
        self,
        runner: RunnerLink,
        cache: ModelCache,
        files: LocalFiles,
        changed: asyncio.Event,
        *,
        is_spare: Callable[[Key], bool],
        is_waited: Callable[[Key], bool],
    ) -> None:
        self._runner = runner
        self._cache = cache
        self._files = files
        self._changed = changed
        self._is_spare = is_spare
        self._is_waited = is_waited
        self.freed = asyncio.Event()
        """Is set when a version is not in use any more."""
        self.is_waiting = False
        """Whether a load waits until what is in use comes free."""

    def fits_freely(self, size: int) -> bool:
        """Whether so much may be loaded ahead of need. What can never fit passes, so that its load says so."""
        return size > self._cache.budget_bytes or self._cache.fits_freely(size, is_spare=self._is_spare)

    async def make(self, size: int) -> None:
        """Unload for a load of so many bytes. Raises :class:`DoesNotFit`."""
        try:
            while (leaving := self._leaving(size)) != []:
                self.freed.clear()
                self.is_waiting = leaving is None
                if leaving is None:
                    await self.freed.wait()  # bounded: every pin is a run with a time limit, and none begins
                else:
                    await self.unload(leaving[0])  # what else is idle may be in use by then
        finally:
            self.is_waiting = False

    async def shrink(self) -> None:
        """Unload what is idle until the budget is kept; wait for what is in use where that does not do."""
        while self._cache.is_over:
            self.freed.clear()
            leaving = self._cache.excess(is_spare=self._is_spare, is_waited=self._is_waited)
            if leaving:
                await self.unload(leaving[0])  # what else is idle may be in use by then
            else:
                await self.freed.wait()  # bounded: every pin is a run with a time limit

    async def shrink_freely(self, key: Key) -> None:
        """Evict only versions placed elsewhere for one loaded ahead of need; if that does not suffice, unload it."""
        for idle in self._cache.excess(is_spare=self._is_spare):
            if self._is_spare(idle) and self._cache.is_idle(idle):
                await self.unload(idle)
        if self._cache.is_over:
            await self.unload(key)
            raise DoesNotFit(f"Version {key[1]} of model {key[0]} takes more than is free here.")

    async def free_disk(self) -> None:
        """Unload what no job waits for, what leaves next first, where its files leave no room for a fetch.

        Otherwise that model could not be served for as long as the memory is the larger one. All stays where that would
        not do.
        """
        model, lacking_bytes = self._files.shortage()
        leaving = []
        for key in self._cache.leaving_order(self._is_spare, self._is_waited):
            if lacking_bytes <= 0:
                break
            if key[0] != model and not self._is_waited(key) and (size_bytes := self._files.held_bytes(key)):
                leaving.append(key)
                lacking_bytes -= size_bytes
        if lacking_bytes <= 0:
            for key in filter(self._cache.is_idle, leaving):
                await self.unload(key)

    async def unload(self, key: Key) -> None:
        """Have a version leave that is not in use."""
        self._cache.drop(key)
        self._files.release(key)
        await self._runner.unload(*key)
        log.info("model.unloaded", model=key[0], version=key[1])
        self._changed.set()

    def _leaving(self, size: int) -> list[Key] | None:
        """What to unload for ``size`` bytes; None if that is in use and may come free."""
        try:
            return self._cache.evictions(size, is_spare=self._is_spare, is_waited=self._is_waited)
        except DoesNotFit:
            if self._cache.is_pinned:
                return None
            raise
