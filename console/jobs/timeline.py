"""A job's story: its steps in order, and where its time went."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from console.jobs.models import Job, JobEvent

_ENDS = {"succeeded", "failed", "cancelled", "expired"}


@dataclass(frozen=True)
class Step:
    """One line of the timeline. at: offset from acceptance, in words."""

    state: str
    at: str
    what: str
    more: str = ""


@dataclass(frozen=True)
class Share:
    """One part of the bar, in per cent of the whole; x: where it begins."""

    name: str
    ms: float
    x: float
    percent: float
    number: int


def steps(job: Job, events: Sequence[JobEvent]) -> list[Step]:
    """What happened, oldest first; an attempt that was lost stays visible."""
    found = [Step("queued", _offset(job, job.created_at), "Accepted and queued", _accepted(job))]
    last_attempt = 0
    is_asked = False
    for event in sorted(events, key=lambda event: (event.at, event.seq)):
        at = _offset(job, event.at)
        if event.attempt > last_attempt and event.worker:
            last_attempt = event.attempt
            claimed = at
            if event.state != "running":  # its claim was overwritten before it was read
                claimed = _ms(event.phases.get("claimed", 0.0))
            found.append(
                Step("running", claimed, f"Attempt {event.attempt} on {event.worker}", _lane(event))
            )
        if event.is_cancel_asked and not is_asked:
            is_asked = True
            found.append(Step("wait", at, "Cancellation asked for"))
        if event.state == "queued" and event.attempt:
            found.append(
                Step("wait", at, f"Attempt {event.attempt} given up; queued again", _error(event))
            )
        elif event.state in _ENDS:
            found += [
                *_inside(event),
                Step(event.state, at, event.state.capitalize(), _error(event)),
            ]
    return found


def shares(job: Job) -> list[Share]:
    """Waiting, preparing, loading and running of an ended job, together 100 per cent; empty while it is open."""
    done = job.phases.get("done")
    if not done:
        return []
    # The claim is written while the batch already runs, so a boundary may lie before the one in front of it.
    bounds, last = [], 0.0
    if "claimed" not in job.phases:
        return [Share("queue", float(done), 0.0, 100.0, 1)]
    for name, key in (
        ("queue", "claimed"),
        ("prepare", "loading"),
        ("load", "started"),
        ("run", "done"),
    ):
        if key == "loading" and "loading" not in job.phases:
            continue
        if key in job.phases:
            label = "prepare" if key == "started" and "loading" not in job.phases else name
            end = min(max(last, float(job.phases[key])), float(done))
            bounds.append((label, last, end))
            last = end
    return [
        Share(name, end - start, round(100 * start / done, 3), round(100 * (end - start) / done, 3), i)
        for i, (name, start, end) in enumerate(bounds, 1) if end > start
    ]  # fmt: skip


def _inside(event: JobEvent) -> list[Step]:
    inside = []
    if (at := event.phases.get("loading")) is not None:
        inside.append(Step("loading", _ms(at), "Model load began"))
    if (at := event.phases.get("started")) is not None:
        inside.append(Step("running", _ms(at), "Run began"))
    return inside


def _accepted(job: Job) -> str:
    return (
        f"key {job.key_id}, priority {job.priority}" if job.key_id else f"priority {job.priority}"
    )


def _lane(event: JobEvent) -> str:
    return f"GPU {event.gpu}, fencing token {event.token}"


def _error(event: JobEvent) -> str:
    return f"{event.error_code}: {event.error_message}" if event.error_code else ""


def _offset(job: Job, at: datetime) -> str:
    return _ms((at - job.created_at).total_seconds() * 1000)


def _ms(milliseconds: float) -> str:
    ms = max(0.0, milliseconds)
    return f"+{ms:.1f} ms" if ms < 1000 else f"+{ms / 1000:.2f} s"
