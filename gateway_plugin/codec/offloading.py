"""Reads and writes binary messages and bodies so that no other request waits for a large one.

A tensor's bytes are copied at once, so nearly all messages are read where they arrive. One with very many fields
(strings, numbers that are not packed), or a large one, goes to a thread. Threads share the processor with everything
else here, so there are few, and accounts take turns.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, MOST_FIELDS, TooManyFields
from gateway_plugin.codec.turns import Turns

HERE_BYTES: Final = 1024 * 1024
"""Messages above this are read and written by a thread."""
_THREADS: Final = 2
T = TypeVar("T")


class Offloading:
    """The threads of one process. timeout_s: longest wait for one."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._turns = Turns(_THREADS)

    async def read(self, account: str, size_bytes: int, work: Callable[[int], T]) -> T:
        """What ``work`` makes of a message of this size. It is given the most fields that it may read, and may be
        called a second time; it must not touch what belongs to the event loop.

        Raises what ``work`` raises, and :class:`LimitExceeded` or :class:`Unavailable` where no thread is free in time.
        """
        if size_bytes <= HERE_BYTES:
            try:
                return work(FEW_FIELDS)
            except TooManyFields:
                pass
        return await self._aside(account, lambda: work(MOST_FIELDS))

    async def write(self, account: str, size_bytes: int, work: Callable[[], bytes]) -> bytes:
        """The message that ``work`` makes of this many bytes. Raises as :meth:`read`."""
        return work() if size_bytes <= HERE_BYTES else await self._aside(account, work)

    async def _aside(self, account: str, work: Callable[[], T]) -> T:
        try:
            async with self._turns.turn(account, self._timeout_s):
                return await _in_thread(work)
        except TimeoutError as error:
            raise self._turns.late(account, what="large messages", bound="decoding") from error


async def _in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns. A thread cannot be stopped: a caller who leaves holds its turn until the thread ends."""
    thread = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(thread)
    finally:
        await asyncio.gather(thread, return_exceptions=True)
