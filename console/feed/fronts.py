"""Alarms for listeners that refuse connections: those of gateways, which report it, and this process's own."""

from collections.abc import Callable
from typing import Final

from console.board.rows import Alarm
from signalbox.program.words import counted
from signalbox.wire.refused import RefusedConnections

KEPT_S: Final = 45.0
"""So long after a gateway last said that it turns connections away the alarm stands; it says so every ten seconds."""
_MOST: Final = 64

Own = Callable[[], RefusedConnections | None]


class Fronts:
    """own: what the listener of this process turns away."""

    def __init__(self, own: Own | None = None) -> None:
        self._own = own
        self._received: dict[str, tuple[RefusedConnections, float]] = {}

    def receive(self, report: RefusedConnections, now: float) -> None:
        """Note a gateway's report."""
        if report.name in self._received or len(self._received) < _MOST:
            self._received[report.name] = (report, now)

    def alarms(self, now: float) -> dict[str, Alarm]:
        """Those that stand now, by key."""
        self._received = {k: (c, at) for k, (c, at) in self._received.items() if now - at < KEPT_S}
        found = {f"front:{name}": _alarm(f"Gateway {name}", c) for name, (c, _) in self._received.items()}
        own = self._own() if self._own is not None else None
        if own is not None:
            found["front"] = _alarm("The console", own)
        return found


def _alarm(who: str, report: RefusedConnections) -> Alarm:
    refused = sum(report.refused.values())
    text = f"{who} has turned {counted(refused, 'connection')} away: {report.open} of {report.bound} are open"
    text += f", and {report.address} has all that one address may." if report.address else "."
    return Alarm("error", text, report.since, "/")
