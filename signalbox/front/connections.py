"""Counts connections by address, and keeps since when some are turned away. Pure; time is passed in."""

import ipaddress
from collections import Counter
from typing import Final

from signalbox.wire.refused import RefusedConnections

FULL: Final = "unavailable:connections"
"""The listener has as many connections as it may."""
ADDRESS: Final = "limit_exceeded:connections"
"""One address has as many as it may."""
QUIET_S: Final = 60.0
"""Seconds after the last connection that was turned away until a listener counts as having room again."""


class Connections:
    """Counts the connections of one listener. per_address: 0 = any number."""

    def __init__(self, *, most: int, per_address: int) -> None:
        self._most = most
        self._per_address = per_address
        self._held: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._since = self._last = 0.0
        self._address = ""
        self.open = 0

    def enter(self, address: str, now: float) -> str:
        """The reason to turn a connection of ``address`` away; empty: it is counted until it leaves. now: Unix time."""
        if self.open >= self._most:
            return self._refuse(FULL, "", now)
        if self._per_address and address and self._held[address] >= self._per_address:
            return self._refuse(ADDRESS, address, now)
        self.open += 1
        if address:
            self._held[address] += 1
        return ""

    def leave(self, address: str) -> None:
        """Note that a counted connection has ended."""
        self.open -= 1
        if address:
            self._held[address] -= 1
            if not self._held[address]:
                del self._held[address]

    def refused_connections(self) -> RefusedConnections | None:
        """The connections turned away, and since when; None while there is room."""
        if not self._refused:
            return None
        return RefusedConnections(
            since=self._since, open=self.open, bound=self._most, refused=dict(self._refused), address=self._address
        )

    def calmed(self, now: float) -> RefusedConnections | None:
        """The connections turned away, returned once, when none was for :data:`QUIET_S`; else None."""
        if not self._refused or now - self._last < QUIET_S:
            return None
        ended = self.refused_connections()
        self._refused.clear()
        self._address = ""
        return ended

    def _refuse(self, reason: str, address: str, now: float) -> str:
        if not self._refused:
            self._since = now
        self._refused[reason] += 1
        self._last = now
        self._address = address or self._address
        return reason


def share_of(peer: object) -> str:
    """The name under which a peer's connections are counted: its IPv4 address or IPv6 /64; empty for a unix socket."""
    if not isinstance(peer, tuple) or not peer:
        return ""
    text = str(peer[0])
    if ":" not in text:
        return text
    address = ipaddress.IPv6Address(text.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
