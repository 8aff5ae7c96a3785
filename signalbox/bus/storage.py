"""How full the streams are, bytes each holds against the most it may take, and how many of their replicas are late."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.wire.assets import SHARES, STREAMS
from signalbox.wire.names import Stream

LIST_S: Final = 10.0
"""Longest wait for what NATS tells of all streams of an account: it waits 4 s itself for the word of each leader."""
NEARLY_FULL: Final = 0.8
"""Part of a stream's limit from which room must be made, before it refuses messages or drops them too early."""
WATCHED: Final = tuple(stream for stream in SHARES if stream not in {Stream.EVENTS, Stream.DELIVERIES})
"""Streams whose use is reported. ``EVENTS`` is history, ``DELIVERIES`` that of attempts at webhooks: both are full by
design and drop their oldest."""
_OTHERS: Final = tuple(config["name"] for config in STREAMS if config["name"] not in WATCHED)


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
            state = info["state"]
            counts = state["messages"], state.get("consumer_count", 0), late_replicas(info)
            found.append(StreamFill(str(stream), state["bytes"], limit, *counts))
    return sorted(found, key=lambda filled: filled.share, reverse=True)


async def read_late(bus: Bus) -> dict[str, int]:
    """Replicas that lag or are away, of each declared stream or bucket that is not watched. Raises as :func:`read`."""
    return {name: late_replicas(await bus.request_json(f"$JS.API.STREAM.INFO.{name}")) for name in _OTHERS}


class Streams(NamedTuple):
    """Those of an account. infos: what NATS tells of each, by name. leaderless: others, of which it tells nothing."""

    infos: dict[str, dict[str, Any]]
    leaderless: frozenset[str]

    def late_replicas(self) -> dict[str, int]:
        """Replicas of each that lag or are away; of one without a leader at least that one."""
        return {name: late_replicas(info) for name, info in self.infos.items()} | dict.fromkeys(self.leaderless, 1)


async def list_streams(bus: Bus) -> Streams:
    """All streams of an account, after 4 s while one has no leader. Raises as :meth:`Bus.request_json`."""
    infos: dict[str, dict[str, Any]] = {}
    leaderless: set[str] = set()
    seen = 0
    while True:
        page = await bus.request_json("$JS.API.STREAM.LIST", {"offset": seen}, timeout_s=LIST_S)
        listed, missing = page.get("streams") or [], page.get("missing") or []
        infos |= {info["config"]["name"]: info for info in listed}
        leaderless |= set(missing)
        seen += len(listed) + len(missing)
        if not (listed or missing) or seen >= page["total"]:
            return Streams(infos, frozenset(leaderless))


def late_replicas(info: Mapping[str, Any]) -> int:
    """Replicas that lag behind their leader or are away, of what NATS tells of a stream; 0 without a cluster."""
    replicas = (info.get("cluster") or {}).get("replicas") or ()
    return sum(not replica.get("current") or replica.get("offline", False) for replica in replicas)
