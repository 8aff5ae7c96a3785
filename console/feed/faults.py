"""The alarm on a fault of NATS, as its supervisor or the programs that miss its answers report it."""

from collections.abc import Callable
from typing import Final

from console.board.view import LiveView
from signalbox.bus.client import Message
from signalbox.bus.stalls import WHY

KEPT_S: Final = 5.0
"""How long a fault stays on the board after its last report; it is reported every second."""


class NatsFaults:
    """One alarm for all reports of a fault. The server's supervisor outranks programs that miss answers."""

    def __init__(self, view: LiveView, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self._fault, self._fault_until = "", float("-inf")
        self.stalled_until = float("-inf")

    def receive_fault(self, message: Message) -> None:
        """What the supervisor of a NATS server reports."""
        now = self._clock()
        self._fault, self._fault_until = message.data.decode(errors="replace")[:500], now + KEPT_S
        self.show(now)

    def receive_stalled(self, _message: Message) -> None:
        """A program's writes are not answered."""
        now = self._clock()
        self.stalled_until = now + KEPT_S
        self.show(now)

    def show(self, now: float) -> None:
        """Raises or clears the alarm, as of ``now``."""
        text = self._fault if now < self._fault_until else ""
        self._view.reported("nats", text or (WHY if now < self.stalled_until else ""))
