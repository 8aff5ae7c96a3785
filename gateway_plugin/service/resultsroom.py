"""Whether there is room for the records and results of more jobs: 503 where there is not, before anything is stored.

``STATE`` takes no more when it is full, so acceptance stops before: what is left takes the ends of jobs accepted until
then. ``PAYLOADS`` gives its oldest large results away for new ones, so acceptance stops when these are nearly as young
as results are promised to be kept. Both are looked at once a second, in the background: no request waits but the first,
and those that could, with the largest records there are, fill what was left at the last look.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from gateway_plugin.service.room import REFUSED
from signalbox.answers import unix_time
from signalbox.bus import Bus
from signalbox.errors import Unavailable
from signalbox.names import Stream

FILLED: Final = 0.8
"""Of ``STATE`` and ``PAYLOADS``, from where acceptance may have to stop."""
_STALE_S: Final = 1.0
_RETRY_AFTER_S: Final = 30.0
_UNLIMITED: Final = 1 << 62


class ResultsRoom:
    """record_bytes: the most one record may take. kept_s: how long results are kept at least. wall: UTC clock."""

    def __init__(
        self,
        bus: Bus,
        *,
        record_bytes: int,
        kept_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._record_bytes = record_bytes
        self._kept_s = kept_s
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._is_full = False
        self._left = 0
        self._since = 0
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        if self._looking is not None:
            await asyncio.wait([self._looking])

    async def require(self) -> None:
        """Raise :class:`Unavailable` where nothing more may be accepted, or nobody can say so yet."""
        age_s = self._loop.time() - self._looked_at
        self._since += 1
        may_be_full = not self._is_full and self._since * self._record_bytes > self._left
        if (age_s > _STALE_S or may_be_full) and self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="room for results")
            # Where it fails NATS is away, which the job's own write meets too.
            self._looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._looking is not None and (may_be_full or self._is_full):
            await asyncio.shield(self._looking)
        if self._is_full:
            REFUSED.labels("results").inc()
            raise Unavailable(
                "There is no room for the results of more jobs without taking earlier ones away too soon. "
                "Nothing was accepted: try again later.",
                retry_after_s=_RETRY_AFTER_S,
                bound="results",
            )

    async def _look(self) -> None:
        self._since = 0
        try:
            state, large = await asyncio.gather(
                *(
                    self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
                    for stream in (Stream.STATE, Stream.PAYLOADS)
                )
            )
            # Twice as long: what is accepted now ends later, and takes room then.
            young = self._wall() - 2 * self._kept_s
            self._left = _left(state)
            self._is_full = self._left <= 0 or (
                _left(large) <= 0 and unix_time(large["state"]["first_ts"]) > young
            )
            self._looked_at = self._loop.time()
        finally:
            self._looking = None


def _left(info: dict[str, Any]) -> int:
    """Bytes until acceptance may have to stop."""
    most: int = info["config"].get("max_bytes", -1)
    held: int = info["state"]["bytes"]
    return int(FILLED * most) - held if most > 0 else _UNLIMITED
