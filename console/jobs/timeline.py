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
    """One part of an attempt's bar, in per cent of the job's whole time; x: where it begins."""

    name: str
    ms: float
    x: float
    percent: float


@dataclass(frozen=True)
class AttemptLine:
    """One attempt of an ended job, and where its time went. how: what it ended with, in words."""

    what: str
    worker: str
    gpu: str
    how: str
    ms: float
    parts: list[Segment]


def steps(job: Job, events: Sequence[JobEvent], account: str = "") -> list[TimelineStep]:
    """What happened, in order of time; an attempt that was lost stays visible. account: its name; empty = its id."""
    found = [(0.0, TimelineStep("queued", _ms(0.0), "Accepted and queued", _accepted(job, account or job.account_id)))]

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


def lines(job: Job) -> list[AttemptLine]:
    """The attempts of a job, the oldest that is kept first; their parts are together 100 per cent once it has ended."""
    attempts = times.attempts(job)
    if not attempts:
        return []
    start, end = (attempts[0].parts or [times.Part("", 0.0, 0.0)])[0].start_ms, _end(attempts[-1])
    whole = end - start
    return [
        AttemptLine(
            f"Attempt {one.number}" if one.is_begun else "Not begun again" if one.number > 1 else "Not begun",
            one.worker,
            one.gpu,
            _how(one),
            sum(part.end_ms - part.start_ms for part in one.parts),
            [_segment(part, start, whole) for part in one.parts if part.end_ms > part.start_ms],
        )
        for one in attempts
    ]


def left_out(job: Job) -> int:
    """Attempts that are older than those which the job's record keeps."""
    return job.attempts[0].number - 1 if job.attempts else 0


def _end(attempt: times.AttemptTimes) -> float:
    return attempt.parts[-1].end_ms if attempt.parts else 0.0


def _segment(part: times.Part, start: float, whole: float) -> Segment:
    ms = part.end_ms - part.start_ms
    return Segment(part.name, ms, round(100 * (part.start_ms - start) / whole, 3), round(100 * ms / whole, 3))


def _how(attempt: times.AttemptTimes) -> str:
    if attempt.how == times.LOST:
        return "lost with its worker"
    return f"{attempt.how}, a {attempt.counts}" if attempt.counts else attempt.how


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
