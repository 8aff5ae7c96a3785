"""Counts the jobs of a model that no worker says anything of, by their messages and records.

What workers have pulled is known from their presence. Where those that had jobs of a model are gone, its consumers
still count as delivered what they had: only ``JOBS`` and ``STATE`` tell then what waits, and what ran on them.
"""

from collections.abc import Collection

from console.board.queues import Gauge
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.jobs import delivery
from signalbox.jobs.holders import is_attended
from signalbox.jobs.records import Records
from signalbox.program.errors import NotFound
from signalbox.wire import names
from signalbox.wire.messages import State, Worker
from signalbox.wire.names import Stream


async def count(bus: Bus, model: str, workers: Collection[Worker]) -> Gauge:
    """The jobs of a model that have not ended. Where they are too many to look at each, all that ``JOBS`` holds wait.

    workers: those that are present. Raises :class:`Unavailable`.
    """
    total, ids = await delivery.stored(bus, model)
    if total and not ids:
        return Gauge(total, await _first_at(bus, model))
    waiting: list[str] = []
    running = lost = 0
    records = await Records(bus).read_many(ids) if ids else {}
    for job_id in ids:
        known = records.get(job_id)
        record = known[0] if known is not None else None
        if record is None or record.state is State.QUEUED:
            waiting.append(job_id)
        elif record.state is State.RUNNING:
            is_here = is_attended(record.worker, record.token, record.claimed_at, workers)
            running, lost = running + is_here, lost + (not is_here)
    times = [names.accepted_at(job_id) for job_id in waiting if names.tells_time(job_id)]
    return Gauge(len(waiting), min(times, default=None), running, lost)


async def _first_at(bus: Bus, model: str) -> float | None:
    ask = {"seq": 1, "next_by_subj": names.jobs_of_model(model)}
    try:
        answer = await bus.request_json(f"$JS.API.STREAM.MSG.GET.{Stream.JOBS}", ask)
    except NotFound:
        return None
    return unix_time(answer["message"]["time"])
