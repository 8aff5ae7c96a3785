"""A job's timeline: its steps in order, and the shares of its time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from console.jobs.models import Job, JobEvent
from signalbox.jobs import times

_ENDS: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})
_INSIDE: Final = (
    ("loading", "loading", "Model load began"),
    ("started", "running", "Run began"),
    ("computed", "running", "Run ended"),
)


@dataclass(frozen=True)
class TimelineStep:
    """One line of the timeline. at: offset from acceptance, in words."""

    state: str
    at: str
    what: str
    more: str = ""


@dataclass(frozen=True)
class Segment:
    """One part of the bar, in per cent of the whole; x: where it begins."""

    name: str
    ms: float
    x: float
    percent: float
    number: int


def steps(job: Job, events: Sequence[JobEvent], account: str = "") -> list[TimelineStep]:
    """What happened, in order of time; an attempt that was lost stays visible. account: its name; empty = its id."""
    found = [(0.0, TimelineStep("queued", _ms(0.0), "Accepted and queued", _accepted(job, account or job.key_id)))]

    def add(ms: float, state: str, what: str, more: str = "") -> None:
        found.append((max(0.0, ms), TimelineStep(state, _ms(ms), what, more)))

    known = sorted(events, key=lambda event: event.seq)
    first_of = {event.attempt: event for event in reversed(known) if event.worker}
    phases_of = {event.attempt: event.phases for event in known}
    for attempt, event in first_of.items():
        phases = phases_of[attempt]
        began = phases.get("pulled", phases.get("claimed"))
        at = began if began is not None else _offset(job, event.at)
        add(at, "running", f"Attempt {attempt} on {event.worker}", _lane(event))
        for phase, state, what in _INSIDE:
            if phase in phases:
                add(phases[phase], state, what)
    asked = next((event for event in known if event.is_cancel_asked), None)
    if asked is not None:
        add(_offset(job, asked.at), "wait", "Cancellation asked for")
    for event in known:
        at = max(_offset(job, event.at), *event.phases.values(), 0.0)  # clocks differ by a little
        if event.state == "queued" and event.attempt:
            add(at, "wait", f"Attempt {event.attempt} given up; queued again", _error(event))
        elif event.state in _ENDS:
            add(at, event.state, event.state.capitalize(), _error(event))
    return [step for _, step in sorted(found, key=lambda each: each[0])]


def shares(job: Job) -> list[Segment]:
    """The parts of an ended job's time, together 100 per cent; empty while it is open."""
    parts = times.parts(job.phases)
    total = parts[-1].end_ms if parts else 0.0
    return [
        Segment(
            part.name,
            part.end_ms - part.start_ms,
            round(100 * part.start_ms / total, 3),
            round(100 * (part.end_ms - part.start_ms) / total, 3),
            number,
        )
        for number, part in enumerate(parts, 1)
        if part.end_ms > part.start_ms
    ]


def _accepted(job: Job, account: str) -> str:
    return f"account {account}, priority {job.priority}" if account else f"priority {job.priority}"


def _lane(event: JobEvent) -> str:
    return f"GPU {event.gpu}, fencing token {event.token}"


def _error(event: JobEvent) -> str:
    if event.error_code == event.state:  # cancelled, expired: the step says it already
        return event.error_message
    return f"{event.error_code}: {event.error_message}" if event.error_code else ""


def _offset(job: Job, at: datetime) -> float:
    return (at - job.created_at).total_seconds() * 1000


def _ms(milliseconds: float) -> str:
    ms = max(0.0, milliseconds)
    return f"+{ms:.1f} ms" if ms < 1000 else f"+{ms / 1000:.2f} s"
