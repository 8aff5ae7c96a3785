"""Describes a job to its owner: its state, what happens to it now, its place in the queue, where its time went."""

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gateway_plugin.service.forecast import Forecast, in_front, starts_in
from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.bus.client import Bus
from signalbox.jobs import times
from signalbox.jobs.delayed import is_delayed
from signalbox.jobs.holders import is_attended
from signalbox.jobs.queues import Queues
from signalbox.jobs.records import Found
from signalbox.jobs.waiting import Decision, hindrance
from signalbox.program.errors import SignalboxError
from signalbox.program.words import counted
from signalbox.wire.messages import Record, State

_OPEN: Final = frozenset({State.QUEUED.value, State.RUNNING.value})


class QueuePosition(NamedTuple):
    """Where a queued job stands. ahead: jobs before it, None = unknown, or delivered. wait_s: until it starts.

    is_pulled: it is delivered to a worker, which has not begun it. is_late: ``wait_s`` is not known since a run or load
    in front takes longer than usual.
    """

    ahead: int | None = None
    wait_s: float | None = None
    is_pulled: bool = False
    is_late: bool = False


class Descriptions:
    """Describes jobs from their records, the catalog and what workers report. wall: UTC clock, seconds."""

    def __init__(
        self, bus: Bus, catalog: Catalog, workers: LiveWorkers, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._queues = Queues(bus, lambda: workers.present)
        self._catalog = catalog
        self._workers = workers
        self._wall = wall

    async def close(self) -> None:
        """Wait for open questions to NATS. Idempotent."""
        await self._queues.close()

    async def locate(self, record: Record, seq: int | None) -> QueuePosition:
        """Where a queued job stands; of one that waits for its time, when that comes. Raises nothing: what cannot be
        read is unknown.
        """
        delay_s = record.not_before - self._wall()
        if delay_s > 0:
            return QueuePosition(wait_s=math.ceil(delay_s * 100) / 100)
        model = self._catalog.find(record.model)
        workers = [] if model is None else self._workers.serving(model)
        if seq is None or model is None or not workers:
            return QueuePosition()
        try:
            ahead = (await self._queues.position(record.model, record.priority, seq)).ahead
        except SignalboxError:
            return QueuePosition()
        wait_s, is_late = Forecast()
        if model.is_enabled and not self._workers.is_paused(record.model):
            fleet = list(self._workers.present)
            wait_s, is_late = starts_in(model, record.version, workers, ahead, self._wall(), fleet=fleet)
        return QueuePosition(ahead, None if wait_s is None else math.ceil(wait_s * 100) / 100, ahead is None, is_late)

    async def of(self, found: Found) -> dict[str, Any]:
        """The job as JSON: state, phase in words, place, error, timeline. RFC 3339 instants."""
        record = found.record
        position = QueuePosition()
        if record.state is State.QUEUED:
            position = await self.locate(record, found.seq)
        doc: dict[str, Any] = {
            "id": record.id,
            "request_id": record.id,
            "model": record.model,
            "version": record.version,
            "signature_name": record.signature,
            "state": record.state.value,
            "phase": self.phase(record, position),
            "priority": record.priority,
            "tags": record.tags,
            "attempt": record.attempt,
            "position": position.ahead,
            "estimated_wait_s": position.wait_s,
            "is_longer_than_usual": position.is_late,
            "created_at": instant(record.created_at),
            "started_at": instant(_started_at(record)),
            "finished_at": instant(record.finished_at),
            "deadline_at": instant(record.deadline_at),
            "not_before": instant(record.not_before or None),
            "attempts": attempts(self._so_far(record)),
            "timeline": timeline(record),
            "urls": urls(record.id),
        }
        if record.gpu:
            doc["gpu"] = record.gpu
        if record.redrive_of:
            doc["redrive_of"] = record.redrive_of
        if record.error is not None and record.state is not State.SUCCEEDED:
            doc["error"] = {"code": record.error.code, "message": record.error.message}
        return doc

    def _so_far(self, record: Record) -> Record:
        """The record with the parts of an open attempt up to now."""
        is_known = record.state is not State.RUNNING or self._is_attended(record)
        age_ms = (self._wall() - record.created_at) * 1000
        delay_ms = max(0.0, record.not_before - record.created_at) * 1000
        return replace(record, parts=times.so_far(record, age_ms, is_known=is_known, delay_ms=delay_ms))

    def _is_attended(self, record: Record) -> bool:
        return is_attended(record.worker, record.token, record.claimed_at, self._workers.present)

    def phase(self, record: Record, position: QueuePosition) -> str:
        """What happens to the job now, in words."""
        if record.cancel_requested and not record.state.is_terminal:
            return "being cancelled"
        if record.state.is_terminal:
            return record.state.value
        if record.state is State.RUNNING:
            running = f"running, attempt {record.attempt}"
            if self._is_attended(record):
                return running
            return f"{running}: its worker is gone; another attempt follows when a worker serves {record.model}"
        return self._why_waiting(record, position)

    def _why_waiting(self, record: Record, position: QueuePosition) -> str:
        if is_delayed(record) and record.not_before > self._wall():
            return f"waiting until {instant(record.not_before)}: not before"
        name = record.model
        model = self._catalog.find(name)
        decided = Decision(model.is_enabled, model.replicas, self._workers.is_paused(name)) if model else None
        if why := hindrance(name, record.version, decided, self._workers.present):
            return f"waiting: {why}"
        if record.attempt:
            reason = f": {record.error.message}" if record.error is not None else ""
            return f"waiting for another attempt after attempt {record.attempt}{reason}"
        workers = self._workers.serving(model) if model else ()
        front = in_front(name, workers, is_pulled=position.is_pulled)
        return ", ".join(filter(None, (_in_words(position), front)))


def _in_words(position: QueuePosition) -> str:
    if position.is_pulled:
        return "waiting: a worker has it"
    if position.ahead is None:
        return "waiting"
    if position.ahead == 0:
        return "waiting: next in line"
    return f"waiting: {counted(position.ahead, 'job')} ahead"


def timeline(record: Record) -> list[dict[str, Any]]:
    """Accepted and every phase the record knows, in order, with the milliseconds since acceptance."""
    entries = [{"phase": "accepted", "ms": 0.0, "at": instant(record.created_at)}]
    for phase, ms in sorted(record.phases.items(), key=lambda item: item[1]):
        entries.append({"phase": phase, "ms": ms, "at": instant(record.created_at + ms / 1000)})
    return entries


def attempts(record: Record) -> list[dict[str, Any]]:
    """Each attempt that the record keeps, oldest first: its device, how it ended and the parts of its time."""
    return [
        {
            "attempt": one.number,
            "gpu": one.gpu or None,
            "ended": one.how if one.how not in _OPEN else None,
            "counts_as": one.counts or None,
            "parts": [{"part": part.name, "ms": round(part.end_ms - part.start_ms, 2)} for part in one.parts],
        }
        for one in times.attempts(record)
    ]


def _started_at(record: Record) -> float | None:
    started_ms = times.started_ms(record.phases)
    return None if started_ms is None else record.created_at + started_ms / 1000


def urls(job_id: str) -> dict[str, str]:
    """The paths of a job."""
    here = f"/v1/jobs/{job_id}"
    return {"self": here, "result": f"{here}/result", "events": f"{here}/events", "cancel": f"{here}/cancel"}


def instant(seconds: float | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
