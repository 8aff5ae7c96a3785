"""How full the streams are: bytes each holds against the most it may take."""

from typing import Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.wire.assets import SHARES
from signalbox.wire.names import Stream

NEARLY_FULL: Final = 0.8
"""Part of a stream's limit from which room must be made, before it refuses messages or drops them too early."""
WATCHED: Final = tuple(stream for stream in SHARES if stream not in {Stream.EVENTS, Stream.DELIVERIES})
"""Streams whose use is reported. ``EVENTS`` is history, ``DELIVERIES`` that of attempts at webhooks: both are full by
design and drop their oldest."""


class StreamFill(NamedTuple):
    """One stream. limit_bytes: its ``max_bytes``, the same on every node. late_replicas: those that lag or are away."""

    stream: str
    used_bytes: int
    limit_bytes: int
    messages: int = 0
    consumers: int = 0
    late_replicas: int = 0

    @property
    def share(self) -> float:
        """Part of the limit that is used, 0 to 1."""
        return self.used_bytes / self.limit_bytes


async def read(bus: Bus) -> list[StreamFill]:
    """Every watched stream that has a limit, the fullest first. Raises as :meth:`Bus.request_json`."""
    found = []
    for stream in WATCHED:
        info = await bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        limit = info["config"].get("max_bytes", -1)
        if limit > 0:
            state, replicas = info["state"], (info.get("cluster") or {}).get("replicas") or ()
            late = sum(not replica.get("current") or replica.get("offline", False) for replica in replicas)
            counts = state["messages"], state.get("consumer_count", 0), late
            found.append(StreamFill(str(stream), state["bytes"], limit, *counts))
    return sorted(found, key=lambda filled: filled.share, reverse=True)
