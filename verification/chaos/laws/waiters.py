"""Laws of the wait queue: which workers waited for a device, which was named, and which was overtaken."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import Entry

SETTLING_S: Final = 30.0
"""So long after its end a fault excuses the order of the line, where a run does not say how long its settings need."""
BEFORE_S: Final = 2.0
"""Seconds after its write by which every worker knows a ticket."""


class Release(NamedTuple):
    """A device that was given up in order, for a waiter. named: whose ticket. waiting: those that stood unharmed."""

    at: float
    named: "_Stand"
    waiting: list["_Stand"]
    is_judged: bool


def releases(h: History) -> list[Release]:
    """Every orderly release for a ticket that stood.

    Harm to the waiter, to who released or to NATS excuses: none of them need have known the line.
    """
    found = []
    lines = _standing(h.waiters)
    owners = {lease["boot"]: lease["owner"] for lease in h.leases if lease["state"] == "HELD"}
    harms = _harms(h)
    for lease in h.leases:
        if lease["state"] != "FREE" or not lease.get("next"):
            continue
        at, gpu = lease["at"], lease["gpu"]
        standing = [t for t in lines if t.gpu == gpu and t.since <= at < t.until + BEFORE_S]
        named = next((t for t in standing if t.worker == lease["next"]), None)
        if named is None:
            continue
        harmed = {who for who, t_in, t_out in harms if t_in <= at <= t_out}
        is_excused = bool(harmed & {"all", owners.get(lease["boot"], "")})
        waiting = [t for t in standing if t.since + BEFORE_S < at < t.until - BEFORE_S and t.worker not in harmed]
        found.append(Release(at, named, waiting, not is_excused))
    return found


def contests(h: History) -> list[Release]:
    """Judged releases with a second waiter: without one, no waiter could be overtaken."""
    return [r for r in releases(h) if r.is_judged and any(t != r.named for t in r.waiting)]


def _harms(h: History) -> list[tuple[str, float, float]]:
    """Whom the faults harmed, from when until when."""
    settling_s = next((f["settling_s"] for f in h.faults if f["event"] == "world"), SETTLING_S)
    begun: dict[tuple[str, str], float] = {}
    found = []
    for fault in h.faults:
        about = (fault.get("target", ""), fault.get("kind", ""))
        if fault["event"] == "begin":
            begun[about] = fault["at"]
        elif fault["event"] == "end":
            began = begun.pop(about, fault["at"])
            found.append((about[0], began - 1.0, fault["at"] + settling_s))
    return found + [(target, at - 1.0, float("inf")) for (target, _), at in begun.items()]


def overtakes(h: History) -> Counter[tuple[str, int]]:
    """How often each ticket saw a later one named by an orderly release, while it stood in the line unharmed."""
    return Counter(
        (ticket.worker, ticket.number)
        for release in releases(h)
        if release.is_judged
        for ticket in release.waiting
        if ticket.number < release.named.number
    )


class _Stand(NamedTuple):
    gpu: str
    worker: str
    number: int
    since: float
    until: float


def _standing(waiters: Iterable[Entry]) -> list[_Stand]:
    """Every ticket with the time it stood."""
    found: list[_Stand] = []
    open_: dict[tuple[str, str], tuple[int, float]] = {}
    for entry in sorted(waiters, key=lambda e: e["seq"]):
        key = (entry["gpu"], entry["worker"])
        known = open_.get(key)
        if known is not None and known[0] != entry["number"]:
            found.append(_Stand(*key, known[0], known[1], entry["at"]))
            del open_[key]
        if entry["number"] and key not in open_:
            open_[key] = (entry["number"], entry["at"])
    found += [_Stand(*key, n, since, float("inf")) for key, (n, since) in open_.items()]
    return found


def starved_waiters(h: History) -> list[str]:
    """No ticket is overtaken more than once by a later one (V2)."""
    return [
        f"ticket {number} of {worker} was overtaken {times} times"
        for (worker, number), times in overtakes(h).items()
        if times > 1
    ]
