"""Checks that the leader of a stream still leads. One that is cut off from the others answers reads for seconds more.

The other nodes elect no new leader before theirs was silent for four seconds. So a leader's answers are
true until :data:`LEADS_S` after a majority of its replicas last answered it, which ``STREAM.INFO`` tells.
"""

import asyncio
from functools import partial
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.program.errors import Unavailable
from signalbox.program.tasks import SingleFlight
from signalbox.wire.names import Stream

LEADS_S: Final = 3.0
"""Less than the shortest election of nats-server: 4 s, and what a heartbeat may be late."""
_RETRY_AFTER_S: Final = 2.0


def silent_s(info: dict[str, Any]) -> float:
    """Seconds since enough replicas for a majority had answered the leader that gave ``info``; 0 without replicas."""
    replicas = (info.get("cluster") or {}).get("replicas") or ()
    needed = (len(replicas) + 1) // 2  # with the leader itself that is more than half
    ages = sorted(replica.get("active", 0) for replica in replicas)
    return float(ages[needed - 1]) / 1e9 if needed else 0.0


class Majority:
    """Proof that no other node leads, kept for as long as it holds: the leader is asked every two seconds at most."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._until: dict[Stream, float] = {}
        self._asking: SingleFlight[Stream, None] = SingleFlight()

    async def require(self, *streams: Stream) -> None:
        """Return if what the leaders of these streams answered just now is what a majority knows.

        Raises :class:`Unavailable` where another leader may know more, or where no leader answers.
        """
        for stream in streams:
            if self._loop.time() >= self._until.get(stream, 0.0):
                await self._asking.ask(stream, partial(self._fetch, stream))
            if self._loop.time() >= self._until[stream]:
                raise Unavailable(
                    "The NATS node that answers may be cut off from the others. Ask again, or another gateway.",
                    retry_after_s=_RETRY_AFTER_S,
                )

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._asking.close()

    async def _fetch(self, stream: Stream) -> None:
        asked_at = self._loop.time()
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        self._until[stream] = asked_at - silent_s(info) + LEADS_S
