"""Checks for room for the records and results of more jobs, before anything is stored: 503 where there is none,
429 where an account has its share of what is left.

``STATE`` takes no more when it is full, so acceptance stops before: what is left takes the ends of jobs accepted until
then. ``PAYLOADS`` gives its oldest large results away for new ones, so acceptance stops when these are nearly as young
as results are promised to be kept. Both are looked at once a second, in the background: no request waits but the first,
and those that could, with the largest records there are, fill what was left when last asked.

Where three quarters of that room are taken, results go as soon as they may. What an account takes then is what its
jobs stored within that least time, which the workers tell in their presence. It may be no more than is still free, so
an account that holds nothing always finds some. What jobs bring that were accepted before comes on top.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from gateway_plugin.admission.refusals import REFUSED
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.program.errors import LimitExceeded, Unavailable
from signalbox.program.tasks import SingleFlight
from signalbox.wire.names import Stream
from signalbox.wire.workerdocs import Worker

FILLED: Final = 0.8
"""Part of ``STATE`` and ``PAYLOADS`` from which acceptance may have to stop."""
SHORT: Final = 0.75
"""Part of ``FILLED`` from which accounts have shares: 0.6 of ``STATE``, where workers call it crowded."""
_STALE_S: Final = 1.0
_RETRY_AFTER_S: Final = 30.0
_UNLIMITED: Final = 1 << 62


class _Room(NamedTuple):
    """size: bytes of results until acceptance stops. used: of these. of: which results of a worker lie there."""

    size: int
    used: int
    of: Callable[[Worker], dict[str, int]]

    @property
    def is_short(self) -> bool:
        return self.used > SHORT * self.size

    @property
    def share(self) -> int:
        """Bytes that an account may have of it now. None free: accounts with a quarter of all are the cause."""
        return self.size - self.used if self.used < self.size else int((1 - SHORT) * self.size)


class ResultsRoom:
    """record_bytes: the most one record may take. kept_s: how long results are kept at least. wall: UTC clock.

    workers: presence of all. most_bytes: what an account's results may take where room is short, in each of the two
    streams; 0 = no more than is still free.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        record_bytes: int,
        kept_s: float,
        workers: Callable[[], Iterable[Worker]] = tuple,
        most_bytes: int = 0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._record_bytes = record_bytes
        self._kept_s = kept_s
        self._workers = workers
        self._most = most_bytes
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._short: list[_Room] = []
        self._is_full = False
        self._left = 0
        self._since = 0
        self._looked_at = float("-inf")
        self._looking: SingleFlight[None, None] = SingleFlight()

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._looking.close()

    async def require(self, account: str, share: int = 0) -> None:
        """Raise :class:`LimitExceeded` where the account has its share of what is short, and :class:`Unavailable` where
        nothing more may be accepted, or where that is not known yet.

        share: bytes that this account may take of it; 0 = what every account may.
        """
        age_s = self._loop.time() - self._looked_at
        self._since += 1
        may_be_full = not self._is_full and self._since * self._record_bytes > self._left
        if age_s > _STALE_S or may_be_full:
            self._looking.start(None, self._measure)  # where it fails NATS is away, which the job's own write meets too
        if (may_be_full or self._is_full) and None in self._looking:
            await self._looking.ask(None, self._measure)
        for room in self._short:
            self._require_share(account, room, share)
        if self._is_full:
            REFUSED.labels("results").inc()
            raise Unavailable(
                "There is no room for the results of more jobs without taking earlier ones away too soon. "
                "Nothing was accepted: try again later.",
                retry_after_s=_RETRY_AFTER_S,
                bound="results",
            )

    def _require_share(self, account: str, room: _Room, share: int) -> None:
        held = sum(room.of(worker).get(account, 0) for worker in self._workers())
        most = share or self._most or room.share
        if held <= most:
            return
        REFUSED.labels("account_results").inc()
        raise LimitExceeded(
            f"Room for results is short, and those of your jobs of the last {self._kept_s:.0f} s take {held} bytes of "
            f"it, where your account may have {most} now. Nothing was accepted: try again when they are older, or send "
            "jobs with smaller results.",
            retry_after_s=_RETRY_AFTER_S,
            bound="results",
            limit_bytes=most,
        )

    async def _measure(self) -> None:
        self._since = 0
        state, large = await asyncio.gather(
            *(self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}") for stream in (Stream.STATE, Stream.PAYLOADS))
        )
        # Twice as long: what is accepted now ends later, and takes room then.
        young = self._wall() - 2 * self._kept_s
        small = _Room(_fillable(state), state["state"]["bytes"], lambda worker: worker.results)
        self._left = small.size - small.used
        self._is_full = self._left <= 0 or (
            large["state"]["bytes"] >= _fillable(large) and unix_time(large["state"]["first_ts"]) > young
        )
        self._short = [room for room in (small, self._large_room(large)) if room.is_short]
        self._looked_at = self._loop.time()

    def _large_room(self, info: dict[str, Any]) -> _Room:
        """``PAYLOADS`` is always full: what counts is half of it, which takes the large results of the least time."""
        used = sum(sum(worker.large_results.values()) for worker in self._workers())
        return _Room(_fillable(info) // 2, used, lambda worker: worker.large_results)


def _fillable(info: dict[str, Any]) -> int:
    """Bytes in the stream from which acceptance may have to stop."""
    most: int = info["config"].get("max_bytes", -1)
    return int(FILLED * most) if most > 0 else _UNLIMITED
