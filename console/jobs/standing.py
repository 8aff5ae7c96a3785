"""How an open job stands now, beside what its last record says: its worker may be gone, its deadline past,
or nothing able to begin it."""

from copy import copy
from datetime import UTC, datetime
from typing import Final, NamedTuple

from django.utils import timezone

from console.board.rows import Queue
from console.feed.feed import Feed
from console.feed.programs import PROJECTOR
from console.feed.running import running
from console.jobs.models import Job
from signalbox.jobs import times
from signalbox.jobs.holders import is_attended
from signalbox.jobs.repair import GRACE_S
from signalbox.jobs.waiting import Decision, hindrance


class Standing(NamedTuple):
    """state: a word of the stylesheet. words: instead of the record's state. why: empty where the record says all."""

    state: str
    words: str
    why: str = ""


_UNKNOWN: Final = "NATS cannot be reached from here: this is what was last known of the job."
_OVERDUE: Final = (
    "Its deadline has passed, so it is not begun any more. It ends as expired when a worker looks through the queue,"
    " or its owner asks for it."
)


def why_rows_are_old() -> str:
    """Why rows of jobs may not be what has become of them; empty where they are current."""
    if running.feed is None or running.feed.is_blind:
        return "NATS cannot be reached from here: jobs are shown as last known, and new ones are missing."
    since = running.stopped_since(PROJECTOR)
    if since is None:
        return ""
    at = datetime.fromtimestamp(since, UTC).strftime("%H:%M:%S")
    return f"The projector does not run: jobs are shown as of {at} UTC; later changes and newer jobs are missing."


def of(job: Job) -> Standing:
    """How a job stands by the presence of workers at this moment."""
    feed = running.feed
    if not job.is_open:
        return Standing(job.state, job.state)
    if feed is None or feed.is_blind:
        return Standing("unknown", f"{job.state} when last known", _UNKNOWN)
    if job.state == "running":
        claimed_at = job.claimed_at.timestamp() if job.claimed_at is not None else None
        if not is_attended(job.worker, job.token, claimed_at, feed.view.queues.workers()):
            return Standing("lost", "running, worker gone", _lost(job))
    elif job.deadline_at is not None and (timezone.now() - job.deadline_at).total_seconds() > GRACE_S:
        return Standing("late", "queued, past its deadline", _OVERDUE)
    elif job.not_before is not None and not job.attempt and job.not_before > timezone.now():
        return Standing(
            "waiting", "queued: delayed", f"waiting until {job.not_before:%Y-%m-%d %H:%M:%S} UTC: not before"
        )
    elif why := hindrance(job.model, job.version, _decided(job.model, feed), feed.view.queues.workers()):
        return Standing("waiting", f"queued: {why.partition(': ')[0]}", f"waiting: {why}")
    return Standing(job.state, job.state)


def so_far(job: Job) -> Job:
    """The job with the parts of an open attempt up to now. It is a copy, and never saved."""
    shown = copy(job)
    age_ms = (timezone.now() - job.created_at).total_seconds() * 1000
    delay_ms = max(0.0, ((job.not_before or job.created_at) - job.created_at).total_seconds()) * 1000
    shown.parts = times.so_far(job, age_ms, is_known=of(job).state not in {"lost", "unknown"}, delay_ms=delay_ms)
    return shown


class Ticking(NamedTuple):
    """Which of a job's times goes on."""

    wait: bool = False
    run: bool = False


def ticking(job: Job) -> Ticking:
    """Which of :func:`spent` goes on at this moment."""
    if not job.is_open or of(job).state in {"lost", "unknown"}:
        return Ticking()
    if job.state == "running":
        is_run = max(job.parts, key=times.PARTS.index, default=times.UNKNOWN) == times.RUN
        return Ticking(wait=not is_run, run=is_run)
    is_delayed = job.not_before is not None and not job.attempt and job.not_before > timezone.now()
    return Ticking(wait=not is_delayed)


def spent(job: Job) -> times.Times:
    """How long it has waited and run, up to now, and took in all."""
    return times.split(so_far(job))


def _decided(model: str, feed: Feed) -> Decision | None:
    row = feed.view.topics.topics["queues"].rows.get(model)
    if not isinstance(row, Queue) or not row.is_known:
        return None
    return Decision(row.is_enabled, row.replicas, row.is_paused)


def _lost(job: Job) -> str:
    return (
        f"Worker {job.worker}, which ran it, is gone or no longer holds the GPU. Another attempt follows when a worker"
        f" serves {job.model}; past its deadline the job fails."
    )
