"""How a job stands now, beside what its last record says: why it waits, that its worker is gone or its deadline past.

Pure: the fleet and the time are passed in. The words of a wait are those of the job API.
"""

from typing import Final, NamedTuple

from signalbox.jobs.holders import is_attended
from signalbox.jobs.reasons import UNPLACED, Fleet, QueuedJob, QueuePosition, hindered, is_delayed, why_waiting
from signalbox.jobs.repair import GRACE_S
from signalbox.wire.messages import Record, State


class Facts(NamedTuple):
    """What the last record of a job says. claimed_at, deadline_at: UTC seconds."""

    queued: QueuedJob
    state: str
    worker: str = ""
    token: int = 0
    claimed_at: float | None = None
    deadline_at: float | None = None

    @classmethod
    def of(cls, record: Record) -> "Facts":
        """Those of a record."""
        error = record.error.message if record.error is not None else ""
        queued = QueuedJob(record.model, record.version, record.priority, record.attempt, record.not_before, error)
        return cls(queued, record.state.value, record.worker, record.token, record.claimed_at, record.deadline_at)


class Standing(NamedTuple):
    """state: a word of the stylesheet. words: instead of the record's state. why: empty where the record says all.

    tone: of a message with it. position: of a job that waits, as far as it is known.
    """

    state: str
    words: str
    why: str = ""
    tone: str = "info"
    position: QueuePosition = UNPLACED

    @property
    def starts(self) -> str:
        """When a job that waits starts, in words; empty where nothing is known of its place."""
        place = self.position
        if place.is_late:
            return "Starts later than usual: what runs in front takes longer."
        if place.wait_s is not None:
            return f"Starts in about {about(place.wait_s)}."
        return "" if place.ahead is None and not place.is_pulled else "When it starts is not known."


_UNKNOWN: Final = "NATS cannot be reached from here: this is what was last known of the job."
_OVERDUE: Final = (
    "Its deadline has passed, so it is not begun any more. It ends as expired when a worker looks through the queue,"
    " or its owner asks for it."
)
_WAITS: Final = "waiting"
"""What the job API says of a job of which it knows nothing more."""


def of(facts: Facts, fleet: Fleet | None, now: float, position: QueuePosition = UNPLACED) -> Standing:
    """How a job stands. fleet: None where NATS is away. now: UTC seconds."""
    state, queued = facts.state, facts.queued
    if State(state).is_terminal:
        return Standing(state, state)
    if fleet is None:
        return Standing("unknown", f"{state} when last known", _UNKNOWN, "warning")
    if state == State.RUNNING:
        if is_attended(facts.worker, facts.token, facts.claimed_at, fleet.workers):
            return Standing(state, state)
        return Standing("lost", "running, worker gone", _lost(facts), "error")
    if facts.deadline_at is not None and now - facts.deadline_at > GRACE_S:
        return Standing("late", "queued, past its deadline", _OVERDUE, "warning")
    why = why_waiting(queued, position, fleet, now)
    if is_delayed(queued, now):
        return Standing("waiting", "queued: delayed", why, position=position)
    if hindrance := hindered(queued, fleet, now):
        return Standing("waiting", f"queued: {hindrance.partition(': ')[0]}", why, "warning", position)
    return Standing(state, state, "" if why == _WAITS else why, position=position)


def about(seconds: float) -> str:
    """``4 s``, ``3 min``, ``2 h``: a time that is an estimate."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


def _lost(facts: Facts) -> str:
    return (
        f"Worker {facts.worker}, which ran it, is gone or no longer holds the GPU. Another attempt follows when a"
        f" worker serves {facts.queued.model}; past its deadline the job fails."
    )
