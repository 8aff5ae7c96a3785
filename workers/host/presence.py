"""Presence: a document with a time to live that says who this worker is and what it does.

Written at every heartbeat and soon after a change that others act on (state, token, models), never
more often than a few times a second. A worker that dies is gone from the table when the TTL ends.

The document has a bound on the wire. One that would pass it is written shortened: a worker that tells less is still
one that serves, a worker that is not in the table is none.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.table import put, remove
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire import messages
from signalbox.wire.names import Bucket, token
from signalbox.wire.workerdocs import Residency, Worker
from workers.host import gauges
from workers.host.devicegauges import DEVICE

SETTLE_S: Final = 0.1
"""Changes within this time share one write."""
LIMIT_BYTES: Final = 60 * 1024
"""Of a document; the bucket takes 64 KiB with its headers."""
MAX_NAMED: Final = 32
"""Ids of jobs in flight that the document names."""
_ERROR_CHARACTERS: Final = 200
MOST_COUNTED: Final = 32
"""Models in a map of a shortened document."""
_ORDER: Final = ("loading", "ready", "fetching", "crowded", "failed", "spare")
"""Which residencies are told first in a shortened document."""


def fitting(worker: Worker) -> Worker:
    """The document, or as much of it as fits: first it loses what only estimates need, last what is resident.

    What else stands in it has bounds of its own (:class:`workers.settings.WorkerSettings` bounds ``serves``).
    """
    if _size(worker) <= LIMIT_BYTES:
        return worker
    worker = replace(
        worker,
        models=tuple(replace(r, error=r.error[:_ERROR_CHARACTERS], use=None, shadow=None) for r in worker.models),
        rates=dict(islice(worker.rates.items(), MOST_COUNTED)),
        load_s=dict(islice(worker.load_s.items(), MOST_COUNTED)),
        in_flight=dict(islice(worker.in_flight.items(), MOST_COUNTED)),
        waiting=dict(islice(worker.waiting.items(), MOST_COUNTED)),
        oldest=dict(islice(worker.oldest.items(), MOST_COUNTED)),
    )
    free = LIMIT_BYTES - _size(replace(worker, models=())) - len(',"models":[]')
    reported: list[Residency] = []
    for resident in sorted(worker.models, key=_rank):
        free -= len(messages.encode(resident)) + 1
        if free < 0:
            break
        reported.append(resident)
    return replace(worker, models=tuple(reported))


def _size(worker: Worker) -> int:
    return len(messages.encode(worker))


def _rank(resident: Residency) -> int:
    return _ORDER.index(resident.state) if resident.state in _ORDER else len(_ORDER)


class Presence:
    """Keeps one worker's document. describe: the present document, ``beat_at`` is filled in here.

    changed: set by whoever has changed something that others should know soon.
    """

    def __init__(self, bus: Bus, worker: str, describe: Callable[[], Worker], *, period_s: float, ttl_s: int) -> None:
        self._bus = bus
        self._key = token(worker)
        self._describe = describe
        self._period_s = period_s
        self._ttl_s = ttl_s
        self.changed = asyncio.Event()
        self._is_shortened = False

    async def write(self) -> None:
        """Write the document now. Raises :class:`Unavailable`."""
        worker = self._describe()
        DEVICE.show(worker)
        reported = fitting(worker)
        is_shortened = reported is not worker
        if is_shortened and not self._is_shortened:
            gauges.PRESENCE_SHORTENED.inc()
            log.warning(
                "presence.shortened",
                models=len(worker.models),
                reported=len(reported.models),
                rates=len(worker.rates),
                waiting=len(worker.waiting),
            )
        self._is_shortened = is_shortened
        await put(self._bus, Bucket.WORKERS, self._key, reported, ttl_s=self._ttl_s)

    async def keep(self) -> None:
        """Until cancelled: heartbeats, and a write soon after each change."""
        while True:
            began_s = time.monotonic()
            try:
                await self.write()
            except SignalboxError as error:
                log.warning("presence.write_failed", why=str(error))
            await asyncio.sleep(SETTLE_S)
            left_s = self._period_s - (time.monotonic() - began_s)
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self.changed.wait()
            except TimeoutError:
                pass
            self.changed.clear()

    async def end(self) -> None:
        """Gone on purpose: others need not wait for the TTL."""
        try:
            await remove(self._bus, Bucket.WORKERS, self._key)
        except SignalboxError as error:
            log.warning("presence.remove_failed", why=str(error))
