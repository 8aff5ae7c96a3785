"""Follows the leases of GPUs into the board's lanes: their history, their state, and each write."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from console.board.view import LiveView
from console.feed import history
from console.feed.retry import until_done
from signalbox.bus.client import Bus, Message
from signalbox.bus.jetstream import unix_time
from signalbox.program import log
from signalbox.wire.names import Bucket, Header, event_of_key, key, untoken
from signalbox.wire.workerdocs import Lease

AGAIN_S: Final = 60.0
"""Between two readings of all leases, though no event may have been missed as far as is known here."""
TTL_S: Final = 20.0
"""Lease time shown where a write does not say its own."""


class Leases:
    """The leases as last known or read, each shown once."""

    def __init__(self, view: LiveView, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self._stale = asyncio.Event()
        self._seqs: dict[str, int] = {}

    def mark_stale(self) -> None:
        """Events may have been missed: :meth:`keep` reads all leases again."""
        self._stale.set()

    async def recall(self, bus: Bus) -> None:
        """History first, then the leases as they are. Raises :class:`Unavailable`."""
        now = self._clock()
        for gpu, intervals in (await history.strips(bus, now)).items():
            self._view.lanes.seed(gpu, intervals, now)
        await self._read(bus)

    async def keep(self, bus: Bus) -> None:
        """Reads the leases again whenever they are stale, and at times: a lease that is free is written no more."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._stale.wait()
            self._stale.clear()
            await until_done(partial(self._read, bus))

    def receive(self, message: Message) -> None:
        """One write of a lease, as NATS republished it."""
        headers = message.headers
        prefix = len(event_of_key(Bucket.LEASES, ""))
        at = unix_time(headers[Header.TIME_STAMP])
        seq = int(headers[Header.SEQUENCE])
        self._take(message.subject[prefix:], headers, message.data, seq, at, self._clock())

    async def _read(self, bus: Bus) -> None:
        stored = await bus.list_latest(Bucket.LEASES.stream, [key(Bucket.LEASES, ">")])
        now = self._clock()
        prefix = len(key(Bucket.LEASES, ""))
        for message in stored:
            self._take(message.subject[prefix:], message.headers, message.data, message.seq, message.time, now)
        for name in set(self._seqs) - {m.subject[prefix:] for m in stored}:
            del self._seqs[name]
            self._view.lanes.lease(untoken(name), None, revision=0, at=now, ttl_s=0.0, now=now)

    def _take(self, name: str, headers: Mapping[str, str], data: bytes, seq: int, at: float, now: float) -> None:
        if seq <= self._seqs.get(name, 0):
            return
        self._seqs[name] = seq
        try:
            lease: Lease | None = history.lease_of(headers, data)
            ttl_s = float(headers.get(Header.TTL, TTL_S)) if lease is not None and lease.state == "HELD" else 0.0
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning("live.unreadable_lease", gpu=name, reason=str(error))
            return
        gpu = lease.gpu if lease else untoken(name)
        self._view.lanes.lease(gpu, lease, revision=seq, at=at, ttl_s=ttl_s, now=now)
