"""Asks programs whether they are ready."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.ops.httppool import ConnectionPool
from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, key, token
from signalbox.wire.workerdocs import Worker

_PROBE_S: Final = 2.0
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def says(connect: Connect, expected: bytes = b"", *, asked: bytes = b"") -> bool:
    """Whether something listens there and, asked that, answers with a line that begins as expected."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PROBE_S):
            reader, writer = await connect()
            try:
                writer.write(asked)
                return not expected or (await reader.readline()).startswith(expected)
            finally:
                writer.close()
    return False


async def http(url: str, path: str) -> bool:
    """Whether a GET of ``path`` succeeds."""
    async with ConnectionPool(url, timeout_s=_PROBE_S) as pool:
        try:
            return (await pool.request("GET", path)).status < 400
        except SignalboxError:
            return False


async def serves(bus: Bus, worker: str) -> bool:
    """Whether a worker says that it is ready."""
    bucket = Bucket.WORKERS
    found = await bus.leader_get(bucket.stream, key(bucket, token(worker)))
    try:
        return found is not None and decode(Worker, found.data).state == "ready"
    except msgspec.MsgspecError:  # an expiry marker of its former life has no body
        return False
