"""How a job stands now, beside what its row says. Its place in the queue is asked from NATS, where it is shown."""

from copy import copy
from datetime import UTC, datetime
from typing import NamedTuple, cast

from asgiref.sync import async_to_sync
from django.utils import timezone

from console.board import standings
from console.board.standings import Facts, Standing
from console.feed.programs import PROJECTOR
from console.feed.running import running
from console.jobs.models import Job
from signalbox.jobs import times
from signalbox.jobs.reasons import UNPLACED, QueuedJob, QueuePosition
from signalbox.wire.names import Priority


def why_rows_are_old() -> str:
    """Why rows of jobs may not be what has become of them; empty where they are current."""
    if running.feed is None or running.feed.is_blind:
        return "NATS cannot be reached from here: jobs are shown as last known, and new ones are missing."
    since = running.stopped_since(PROJECTOR)
    if since is None:
        return ""
    at = datetime.fromtimestamp(since, UTC).strftime("%H:%M:%S")
    return f"The projector does not run: jobs are shown as of {at} UTC; later changes and newer jobs are missing."


def of(job: Job, position: QueuePosition = UNPLACED) -> Standing:
    """How a job stands by the presence of workers at this moment. position: where it is known."""
    feed = running.feed
    fleet = None if feed is None or feed.is_blind else feed.fleet(job.model)
    return standings.of(facts(job), fleet, timezone.now().timestamp(), position)


def with_place(job: Job) -> Standing:
    """How it stands, with its place and an estimate: NATS is asked, for half a second at most."""
    feed = running.feed
    if job.state != "queued" or feed is None or feed.is_blind:
        return of(job)
    # On the loop of the server, which the feed belongs to.
    return of(job, async_to_sync(feed.locate)(job.pk, facts(job).queued))


def facts(job: Job) -> Facts:
    """What its row says."""
    queued = QueuedJob(
        job.model,
        job.version,
        cast("Priority", job.priority),
        job.attempt,
        _seconds(job.not_before) or 0.0,
        job.error_message,
    )
    return Facts(queued, job.state, job.worker, job.token, _seconds(job.claimed_at), _seconds(job.deadline_at))


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


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None
