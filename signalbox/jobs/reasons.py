"""Why a job waits, its place in the queue and when it starts: the same for the job API and the console.

Pure, but for :func:`locate`, which asks NATS.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

from signalbox.jobs.forecast import Forecast, in_front, starts_in
from signalbox.jobs.queues import Queues
from signalbox.jobs.starts import coming
from signalbox.jobs.waiting import Decision, hindrance, serving
from signalbox.program.errors import SignalboxError
from signalbox.program.words import counted
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Priority
from signalbox.wire.scaling import Host
from signalbox.wire.workerdocs import Worker


class QueuedJob(NamedTuple):
    """What is to be known of a queued job. not_before: UTC seconds, 0 = at once. error: of the last attempt."""

    model: str
    version: int
    priority: Priority
    attempt: int = 0
    not_before: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Fleet:
    """What a job of one model waits for. model: None = there is none. workers, hosts: all that are present."""

    model: Model | None
    is_paused: bool
    workers: Collection[Worker]
    hosts: Collection[Host] = ()

    @cached_property
    def serving(self) -> list[Worker]:
        """The workers that would run the model's jobs."""
        return serving(self.model, self.workers) if self.model is not None else []

    def is_served(self, now: float) -> bool:
        """Whether a worker would run the model's jobs, or is being started. now: UTC seconds."""
        return bool(self.serving) or (self.model is not None and bool(coming(self.hosts, self.workers, now)))


class QueuePosition(NamedTuple):
    """Where a queued job stands. ahead: jobs before it, None = unknown, or delivered. wait_s: until it starts.

    is_pulled: it is delivered to a worker, which has not begun it. is_late: ``wait_s`` is not known since a run or load
    in front takes longer than usual.
    """

    ahead: int | None = None
    wait_s: float | None = None
    is_pulled: bool = False
    is_late: bool = False


UNPLACED: Final = QueuePosition()
"""Nothing is known of where it stands."""


def is_delayed(job: QueuedJob, now: float) -> bool:
    """Whether it waits for its time, and is in no queue yet."""
    return not job.attempt and job.not_before > now


async def locate(queues: Queues, job: QueuedJob, seq: int | None, fleet: Fleet, now: float) -> QueuePosition:
    """Where a queued job stands; of one that waits for its time, when that comes. Raises nothing: what cannot be
    read is unknown. seq: of its message in ``JOBS``. now: UTC seconds.
    """
    if job.not_before > now:
        return QueuePosition(wait_s=_rounded(job.not_before - now))
    if seq is None or not fleet.is_served(now):
        return UNPLACED
    try:
        ahead = (await queues.position(job.model, job.priority, seq)).ahead
    except SignalboxError:
        return UNPLACED
    return estimated(job, ahead, fleet, now)


def estimated(job: QueuedJob, ahead: int | None, fleet: Fleet, now: float) -> QueuePosition:
    """Where it stands with so many jobs before it; None = a worker has pulled it."""
    wait_s, is_late = Forecast()
    if fleet.model is not None and fleet.model.is_enabled and not fleet.is_paused:
        wait_s, is_late = starts_in(
            fleet.model, job.version, fleet.serving, ahead, now, fleet=fleet.workers, hosts=fleet.hosts
        )
    return QueuePosition(ahead, None if wait_s is None else _rounded(wait_s), ahead is None, is_late)


def hindered(job: QueuedJob, fleet: Fleet, now: float) -> str:
    """Why no worker can begin it now (UTC seconds), in words that follow "waiting:"; empty where one can."""
    model = fleet.model
    decided = Decision(model.is_enabled, model.replicas, fleet.is_paused) if model is not None else None
    return hindrance(job.model, job.version, decided, fleet.workers, fleet.hosts, now)


def why_waiting(job: QueuedJob, position: QueuePosition, fleet: Fleet, now: float) -> str:
    """Why no worker has begun it yet, in words."""
    if is_delayed(job, now):
        return f"waiting until {instant(job.not_before)}: not before"
    if why := hindered(job, fleet, now):
        return f"waiting: {why}"
    if job.attempt:
        reason = f": {job.error}" if job.error else ""
        return f"waiting for another attempt after attempt {job.attempt}{reason}"
    front = in_front(job.model, fleet.serving, is_pulled=position.is_pulled)
    return ", ".join(filter(None, (_in_words(position), front)))


def instant(seconds: float) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_words(position: QueuePosition) -> str:
    if position.is_pulled:
        return "waiting: a worker has it"
    if position.ahead is None:
        return "waiting"
    if position.ahead == 0:
        return "waiting: next in line"
    return f"waiting: {counted(position.ahead, 'job')} ahead"


def _rounded(seconds: float) -> float:
    return math.ceil(seconds * 100) / 100
