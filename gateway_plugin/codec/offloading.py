"""Reads and writes binary messages so that no other request waits for a large one.

A tensor's bytes are copied at once, so nearly all messages are read where they arrive. One with very many fields
(strings, numbers that are not packed), or a large one, goes to a thread: there it shares the processor.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, MOST_FIELDS, TooManyFields

HERE_BYTES: Final = 1024 * 1024
"""Messages above this are read and written by a thread."""
T = TypeVar("T")


async def read(size_bytes: int, work: Callable[[int], T]) -> T:
    """What ``work`` makes of a message of this size. It is given the most fields that it may read, and may be called
    a second time; it must not touch what belongs to the event loop.
    """
    if size_bytes <= HERE_BYTES:
        try:
            return work(FEW_FIELDS)
        except TooManyFields:
            pass
    return await asyncio.to_thread(work, MOST_FIELDS)


async def write(size_bytes: int, work: Callable[[], bytes]) -> bytes:
    """The message that ``work`` makes of this many bytes."""
    return work() if size_bytes <= HERE_BYTES else await asyncio.to_thread(work)
