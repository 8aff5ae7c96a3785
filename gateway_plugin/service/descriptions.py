"""Describes a job to its owner: its state, what happens to it now, its place in the queue, where its time went."""

import time
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.bus.client import Bus
from signalbox.jobs import reasons, times
from signalbox.jobs.holders import is_attended
from signalbox.jobs.queues import Queues
from signalbox.jobs.reasons import Fleet, QueuedJob, QueuePosition, locate, why_waiting
from signalbox.jobs.records import Found
from signalbox.wire.messages import Record, State

_OPEN: Final = frozenset({State.QUEUED.value, State.RUNNING.value})


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
        return await locate(self._queues, _queued(record), seq, self._fleet(record.model), self._wall())

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
        if record.webhook:
            doc["webhook"] = record.webhook
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
        return why_waiting(_queued(record), position, self._fleet(record.model), self._wall())

    def _fleet(self, model: str) -> Fleet:
        workers = self._workers
        return Fleet(self._catalog.find(model), workers.is_paused(model), list(workers.present), workers.hosts)


def _queued(record: Record) -> QueuedJob:
    error = record.error.message if record.error is not None else ""
    return QueuedJob(record.model, record.version, record.priority, record.attempt, record.not_before, error)


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
    return None if seconds is None else reasons.instant(seconds)
