"""Whether the console's background programs run, from their heartbeats, and what is so while one does not."""

from collections.abc import Callable
from typing import Final

from console.board.rows import Alarm, Figure
from console.board.view import LiveView
from signalbox.bus.client import Message
from signalbox.wire.names import program_alive
from signalbox.wire.outboundnames import OUTBOUND

SILENT_S: Final = 10.0
"""So long after its last heartbeat a program counts as stopped; it sends one every two seconds."""
CONTROLLER: Final = "controller"
PROJECTOR: Final = "projector"
_STOPPED: Final = {
    CONTROLLER: "The controller does not run: what NATS has lost is not published again, vanished jobs are not settled,"
    " old rows are not deleted, and the audit is not noted. Decisions are published by the console itself.",
    PROJECTOR: "The projector does not run: jobs that have come or changed since are missing in the job list, or stand"
    " there as they were.",
    OUTBOUND: "The outbound program does not run: ends of jobs go to no stream and no webhook, batches of files do not"
    " go on, and queues are neither made nor changed nor forwarded to services. Records of subscribed accounts wait for"
    " it, for as long as SIGNALBOX_ENDS_HELD_S says.",
}


class Programs:
    """since: when NATS was first reached, so that silence before it says nothing."""

    def __init__(self, view: LiveView, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self._received: dict[str, float] = {}
        self._since: float | None = None
        self._job_list = Figure("Job list", "unknown", "?")
        self.has_outbound_work: Callable[[], bool] = lambda: False
        """Whether anything is to go out: without, nobody misses the program that does it."""

    def receive(self, message: Message) -> None:
        """One heartbeat."""
        self._received[message.subject.removeprefix(program_alive(""))] = self._clock()

    def read(self, job_list: Figure) -> None:
        """How far the job list was when last looked at."""
        self._job_list = job_list

    def stopped_since(self, name: str) -> float | None:
        """Since when a program has been silent; None while it runs, or nothing is known of it."""
        if self._since is None:
            return None
        last = max(self._since, self._received.get(name, 0.0))
        return last if self._clock() - last > SILENT_S else None

    def show(self, *, is_blind: bool) -> None:
        """Figures and alarms, each second."""
        if is_blind:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        missed = [
            name for name in _STOPPED if name != OUTBOUND or OUTBOUND in self._received or self.has_outbound_work()
        ]
        silent = {name: at for name in missed if (at := self.stopped_since(name)) is not None}
        self._view.stand("programs", {name: Alarm("error", _STOPPED[name], at) for name, at in silent.items()})
        runs = (
            Figure("Controller", "ok", "runs") if CONTROLLER in self._received else Figure("Controller", "unknown", "?")
        )
        stopped = Figure("Controller", "failed", "stopped", "no heartbeat")
        self._view.health(CONTROLLER, stopped if CONTROLLER in silent else runs)
        behind = Figure("Job list", "failed", "stopped", "the projector does not run")
        self._view.health(PROJECTOR, behind if PROJECTOR in silent else self._job_list)
