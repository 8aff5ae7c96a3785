"""Wakes this process's publisher when a transaction that posted has committed."""

import asyncio
import threading
from typing import Final, Self

_lock: Final = threading.Lock()
_sleepers: Final[set["Waker"]] = set()


class Waker:
    """An event of one event loop that any thread may set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        with _lock:
            _sleepers.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _sleepers.discard(self)

    def ring(self) -> None:
        """Set the event, from any thread. Does nothing when the loop has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float) -> None:
        """Return when rung, or after ``timeout_s`` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


def everybody() -> None:
    """Ring every publisher of this process; those of other processes poll."""
    with _lock:
        sleepers = list(_sleepers)
    for sleeper in sleepers:
        sleeper.ring()
