"""Clean streams for the next test on a server that many tests share."""

import asyncio
import contextlib
from typing import Final

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.jobs import delivery
from signalbox.program.errors import NotFound
from signalbox.wire.assets import STREAMS
from signalbox.wire.names import Priority, Stream

PATIENT_S: Final = 30.0
"""Request timeout of a test's own connections: a disk that others use takes seconds now and then."""
_ANCHOR: Final = {"name": "ANCHOR", "storage": "file", "max_msgs": 1}
"""A moment after its last stream has gone, nats-server removes the folder they were in, and with it fails whoever makes
a stream in that moment ("error creating store for stream", once in a thousand times). This one stays."""


async def make_clean(bus: Bus) -> None:
    """Delete every declared stream and bucket with all it holds, consumers too, and declare them again."""
    await bus.request_json(f"$JS.API.STREAM.CREATE.{_ANCHOR['name']}", _ANCHOR)
    for declared in reversed(STREAMS):
        with contextlib.suppress(NotFound):
            await bus.request_json(f"$JS.API.STREAM.DELETE.{declared['name']}")
    await topology.apply(bus)


async def counted(bus: Bus, model: str, priority: Priority, *, waiting: int, generation: int = 0) -> None:
    """Return when a class's consumer counts so many: it follows the acknowledgement of a write, by milliseconds.

    Of a consumer that nobody asks for jobs meanwhile: another count may be all that there ever is.
    """
    async with asyncio.timeout(60):
        while (await delivery.find(bus, model, priority, generation)).num_pending != waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def emptied(bus: Bus, *, limit_s: float = 120.0) -> None:
    """Return when no message of a job is left, which workers remove some seconds after its end."""
    async with asyncio.timeout(limit_s):
        while (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}"))["state"]["messages"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
