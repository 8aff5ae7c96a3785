"""What the lease asks of the guard, as orders, and what the guard reports, as events of the lease. Pure."""

import errno

from workers.guard.link import GuardReport
from workers.lease import effects, events
from workers.lease.events import Event

ForGuard = effects.Lock | effects.Unlock | effects.Deadline | effects.Enter | effects.Leave | effects.Fence


def order_of(effect: ForGuard, *, hold_s: float) -> tuple[str, tuple[int, ...]]:
    """Name and numbers of the order (a method of :class:`workers.guard.link.GuardOrders`).

    hold_s: how long a guard keeps the flock for a supervisor that is silent.
    """
    match effect:
        case effects.Lock():
            return "lock", (_ns(hold_s),)
        case effects.Unlock():
            return "unlock", ()
        case effects.Deadline(at):
            return "deadline", (_ns(at),)
        case effects.Enter(token, deadline):
            return "enter", (token, _ns(deadline))
        case effects.Leave():
            return "leave", ()
        case effects.Fence():
            return "fence", ()


def event_of(report: GuardReport) -> Event | None:
    """What a report means for the lease; None where that is nothing."""
    match report.verb:
        case "locked":
            return events.Locked(report.number)
        case "left" | "unlocked":
            return events.Unlocked()
        case "fenced":
            return events.Unlocked(is_fenced=True)
        case "entered":
            return events.Entered(report.number)
        case "error enter" if report.number != errno.EAGAIN:  # EAGAIN: the guard has reported another event first
            return events.DeviceUnusable()
        case "ready":
            return events.RunnerReady()
        case "died":
            return events.RunnerDied()
        case "gone":
            return events.GuardGone()
    return None


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
