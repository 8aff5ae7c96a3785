"""Counts the jobs of a model by their messages and records, where its consumers do not tell what waits.

Where the workers that had jobs of a model are gone, its consumers still count as delivered what they had. One that was
made anew counts as pending what a worker has or what has ended. Only ``JOBS`` and ``STATE`` tell then what waits and
what runs.
"""

from collections.abc import Collection

import msgspec

from console.board.queues import Gauge
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import Stored
from signalbox.jobs import delivery
from signalbox.jobs.holders import is_attended
from signalbox.jobs.records import Records
from signalbox.wire import jobids, names
from signalbox.wire.messages import State
from signalbox.wire.names import Stream
from signalbox.wire.workerdocs import Worker


async def count(bus: Bus, model: str, workers: Collection[Worker]) -> Gauge:
    """The jobs of a model that have not ended. Where they are too many to look at each, all that ``JOBS`` holds wait,
    and the gauge is not whole.

    workers: those that are present. Raises :class:`Unavailable`.
    """
    total, ids = await delivery.stored(bus, model)
    if total and not ids:
        first = await bus.leader_next(Stream.JOBS, 1, names.jobs_of_model(model))
        return Gauge(total, first.time, deadline_at=deadline_of(first)) if first is not None else Gauge(total, None)
    waiting: list[str] = []
    running = lost = 0
    records = Records(bus)
    known = await records.read_many(ids) if ids else {}
    for job_id in filter(jobids.JOB_ID.match, ids):
        record, _ = known.get(job_id) or (None, 0)
        if record is None or record.state is State.QUEUED:
            waiting.append(job_id)
        elif record.state is State.RUNNING:
            is_here = is_attended(record.worker, record.token, record.claimed_at, workers)
            running, lost = running + is_here, lost + (not is_here)
    oldest = min(waiting, default="")  # ids begin with their time
    first = await records.queued(oldest) if oldest else None
    if first is None:
        return Gauge(len(waiting), None, running, lost, is_whole=True)
    return Gauge(len(waiting), first.time, running, lost, deadline_of(first), is_whole=True)


def deadline_of(stored: Stored) -> float:
    """Until when a job in ``JOBS`` may begin; 0 where its message cannot be read."""
    try:
        return stored.job.deadline_at
    except (KeyError, ValueError, msgspec.MsgspecError):
        return 0.0
