"""Reports what the disk cache of this host holds: one document in the bucket ``caches`` for all workers of the host."""

import asyncio
import fcntl
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec

from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire import messages, names
from signalbox.wire.manifests import CachedFiles, HostCache
from signalbox.wire.names import Bucket, token
from workers.diskcache.room import Room
from workers.host import gauges

TTL_S: Final = 180
REFRESH_S: Final = 60.0
"""Between two writes of an unchanged cache, so that its document outlives two that fail."""
LEAST_S: Final = 1.0
"""Between two writes of the host's workers."""
BYTES_PER_S: Final = 64 * 1024
"""Most of what a host writes on average: large documents are written less often."""
LIMIT_BYTES: Final = 512 * 1024
"""Of a document: the versions used last, some four thousand."""
_RETRY_S: Final = 5.0
_LOCK: Final = ".report"
T = TypeVar("T")


class InThread(Protocol):
    """Runs what blocks."""

    def __call__(self, act: Callable[[], T]) -> Awaitable[T]:
        """What ``act`` returns or raises."""


class Contents:
    """The document of one host, as one of its workers keeps it. host: the id of its lock directory."""

    def __init__(self, bus: Bus, room: Room, host: str, in_thread: InThread) -> None:
        self._bus = bus
        self._room = room
        self._host = host
        self._in_thread = in_thread
        self._name = socket.gethostname()
        self.changed = asyncio.Event()

    async def keep(self) -> None:
        """Until cancelled: write it soon after each change, and from time to time without one."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    await self.changed.wait()
            self.changed.clear()
            try:
                pause_s = await self._write()
            except BlockingIOError:  # another worker of the host writes
                self.changed.set()
                pause_s = LEAST_S
            except (SignalboxError, OSError) as error:
                log.warning("cache.not_reported", why=str(error))
                self.changed.set()
                pause_s = _RETRY_S
            await asyncio.sleep(pause_s)

    async def _write(self) -> float:
        """Write what is there now, unless another worker of the host writes or has just written: then it is due later.

        Returns the seconds until the next write may be due.
        """
        fd = await self._in_thread(self._lock)
        try:
            pause_s = min(os.fstat(fd).st_mtime - time.time(), LIMIT_BYTES / BYTES_PER_S)
            if pause_s > 0:
                self.changed.set()
                return pause_s
            document = await self._in_thread(self._document)
            gauges.CACHE_BYTES.set(document.used_bytes)
            data = messages.encode(document)
            await self._bus.write(names.key(Bucket.CACHES, token(self._host)), data, ttl_s=TTL_S)
            pause_s = max(LEAST_S, len(data) / BYTES_PER_S)
            until = time.time() + pause_s
            os.utime(fd, (until, until))
        finally:
            os.close(fd)
        return pause_s

    def _lock(self) -> int:
        """The lock of who writes: so the host's documents follow one another. Its time is when the next one may be.

        Raises ``BlockingIOError`` where another worker has it.
        """
        fd = os.open(self._room.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _document(self) -> HostCache:
        found = self._room.contents()
        free, versions = LIMIT_BYTES, []
        for one, facts, used_at in found:
            row = CachedFiles(*one.key, one.repository, facts.size_bytes, int(used_at), facts.digest)
            free -= len(msgspec.json.encode(row)) + 1
            if free < 0:
                break
            versions.append(row)
        return HostCache(
            host=self._host,
            name=self._name,
            at=time.time(),
            used_bytes=sum(facts.size_bytes for _, facts, _ in found),
            limit_bytes=self._room.limit_bytes,
            count=len(found),
            versions=tuple(versions),
        )
