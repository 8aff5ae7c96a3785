"""Finds, describes and cancels jobs for their owner. A job of another owner counts as not there."""

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.decoder import too_large
from gateway_plugin.codec.errorcodes import error_of
from gateway_plugin.service.forecast import Forecast, in_front, starts_in
from gateway_plugin.service.waiting import End
from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.bus.client import Bus
from signalbox.bus.majority import Majority
from signalbox.jobs import joblog, payloads, times
from signalbox.jobs.cancel import OWNER, cancel, withdraw
from signalbox.jobs.holders import is_attended
from signalbox.jobs.queues import Queues
from signalbox.jobs.records import Found, Records
from signalbox.jobs.repair import expire
from signalbox.jobs.waiting import Decided, hindrance
from signalbox.program.errors import Bug, Conflict, NotFound, SignalboxError, Unavailable
from signalbox.program.words import counted
from signalbox.wire import names, tensors
from signalbox.wire.messages import Job, Record, State
from signalbox.wire.names import Stream
from signalbox.wire.tensors import Tensor

_RACES: Final = 5
_OPEN: Final = frozenset({State.QUEUED.value, State.RUNNING.value})
_NO_JOB: Final = "There is no such job, or it is not yours."


class QueuePosition(NamedTuple):
    """Where a queued job stands. ahead: jobs before it, None = unknown, or delivered. wait_s: until it starts.

    is_pulled: it is delivered to a worker, which has not begun it. is_late: ``wait_s`` is not known since a run or load
    in front takes longer than usual.
    """

    ahead: int | None = None
    wait_s: float | None = None
    is_pulled: bool = False
    is_late: bool = False


class JobService:
    """Reads, describes and cancels jobs of one key. wall: UTC clock, seconds."""

    def __init__(
        self,
        bus: Bus,
        records: Records,
        catalog: Catalog,
        workers: LiveWorkers,
        codec: BodyCodec,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._records = records
        self._queues = Queues(bus, lambda: workers.present)
        self._majority = Majority(bus)
        self._catalog = catalog
        self._workers = workers
        self._codec = codec
        self._wall = wall

    async def close(self) -> None:
        """Wait for open questions to NATS. Idempotent."""
        await self._queues.close()
        await self._majority.close()

    async def find(self, job_id: str, account: str) -> Found:
        """The job of an owner: the one place that checks ownership.

        Raises :class:`NotFound`, in the same words for an unknown, a malformed and a foreign id, and
        :class:`Unavailable` where a majority of NATS may know more.

        A job whose deadline passed in the queue is ended here, so that it ends also without workers.
        """
        if names.JOB_ID.match(job_id) is None:
            raise NotFound(_NO_JOB)
        for _ in range(_RACES):
            found = await self._records.find(job_id)
            if found is None or found.record.account_id != account:
                await self._majority.require(Stream.STATE, Stream.JOBS)
                raise NotFound(_NO_JOB)
            is_overdue = found.record.state is State.QUEUED and (found.record.deadline_at <= self._wall())
            if not is_overdue:
                return found
            if (ended := await expire(self._bus, self._records, found, now=self._wall())) is not None:
                return ended
        raise Unavailable("The job changes too quickly to be read; ask again.", retry_after_s=1.0)

    async def may_be_forgotten(self, named_at: float, *, kept_s: float) -> bool:
        """Whether a job named at ``named_at``, now unknown, may have run and ended: it must not run again."""
        return await self._records.may_have_gone(named_at, now=self._wall(), kept_s=kept_s)

    async def cancel(self, job_id: str, account: str) -> Found:
        """As :func:`signalbox.jobs.cancel.cancel`, for its owner.

        Raises :class:`NotFound` as :meth:`find`, and :class:`Conflict` when the job has ended otherwise.
        """
        found = await self.find(job_id, account)
        found = await cancel(self._bus, self._records, found, by=OWNER, clock=self._wall)
        state = found.record.state
        if state.is_terminal and state is not State.CANCELLED:
            raise Conflict(f"The job has already ended: {state}.", state=state.value)
        return found

    async def give_up(self, job: Job) -> None:
        """As :func:`signalbox.jobs.cancel.withdraw`."""
        await withdraw(self._records, job, now=self._wall())

    async def result(self, end: End, *, is_strict: bool = False) -> bytes:
        """The rendered answer of a job that succeeded. is_strict: as JSON that a browser reads.

        Raises the error that ended it otherwise, or that rendering meets.
        """
        record = end.record
        if record.state is not State.SUCCEEDED:
            raise failure(record)
        try:
            if record.ref is not None:
                self._codec.require_answerable(record.ref.size)
            frame = await self._frame(end)
            body = await self._codec.render(record.account_id, frame, record.style, is_strict=is_strict)
        except SignalboxError as error:
            error.facts["job_id"] = record.id
            raise
        joblog.step("job.rendered", record, size_bytes=len(body))
        return body

    async def outputs(self, end: End, limit_bytes: int) -> list[Tensor]:
        """The outputs of a job that succeeded.

        Raises the error that ended it otherwise, and :class:`ResultTooLarge` for more than the limit.
        """
        record = end.record
        if record.state is not State.SUCCEEDED:
            raise failure(record)
        try:
            if record.ref is not None and record.ref.size > limit_bytes:
                raise too_large(record.ref.size, limit_bytes, "")
            return tensors.decode(await self._frame(end))
        except msgspec.MsgspecError as error:  # no fault of the caller's, whatever the model did
            raise Bug(f"The result is no frame of tensors: {error}.", job_id=record.id) from error
        except SignalboxError as error:
            error.facts["job_id"] = record.id
            raise

    async def _frame(self, end: End) -> bytes:
        ref = end.record.ref
        return end.body if ref is None else await payloads.fetch(self._bus, ref)

    async def locate(self, record: Record, seq: int | None) -> QueuePosition:
        """Where a queued job stands. Raises nothing: what cannot be read is unknown."""
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
            wait_s, is_late = starts_in(model, record.version, workers, ahead, self._wall())
        return QueuePosition(ahead, None if wait_s is None else math.ceil(wait_s * 100) / 100, ahead is None, is_late)

    async def describe(self, found: Found, *, with_result: bool = True) -> dict[str, Any]:
        """The job as JSON: state, phase in words, place, result or error, timeline. RFC 3339 instants."""
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
            "attempt": record.attempt,
            "position": position.ahead,
            "estimated_wait_s": position.wait_s,
            "is_longer_than_usual": position.is_late,
            "created_at": instant(record.created_at),
            "started_at": instant(_started_at(record)),
            "finished_at": instant(record.finished_at),
            "deadline_at": instant(record.deadline_at),
            "attempts": attempts(self._so_far(record)),
            "timeline": timeline(record),
            "urls": {"self": f"/v1/jobs/{record.id}", "cancel": f"/v1/jobs/{record.id}/cancel"},
        }
        if record.gpu:
            doc["gpu"] = record.gpu
        if record.redrive_of:
            doc["redrive_of"] = record.redrive_of
        if record.error is not None and record.state is not State.SUCCEEDED:
            doc["error"] = {"code": record.error.code, "message": record.error.message}
        if with_result and record.state is State.SUCCEEDED:
            doc["result"] = await self._result_or_reason(End(record, found.body), doc)
        return doc

    def _so_far(self, record: Record) -> Record:
        """The record with the parts of an open attempt up to now."""
        is_known = record.state is not State.RUNNING or self._is_attended(record)
        age_ms = (self._wall() - record.created_at) * 1000
        return replace(record, parts=times.so_far(record, age_ms, is_known=is_known))

    def _is_attended(self, record: Record) -> bool:
        return is_attended(record.worker, record.token, record.claimed_at, self._workers.present)

    async def _result_or_reason(self, end: End, doc: dict[str, Any]) -> Any:
        try:
            return orjson.Fragment(await self.result(end, is_strict=True))
        except Unavailable:
            raise
        except SignalboxError as error:
            doc["error"] = {"code": error.code, "message": error.public_message}
            return None

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
        name = record.model
        model = self._catalog.find(name)
        decided = Decided(model.is_enabled, model.replicas, self._workers.is_paused(name)) if model else None
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


def failure(record: Record) -> SignalboxError:
    """The error for a job that did not succeed, with the job's id."""
    if record.state is State.CANCELLED:
        error = error_of("cancelled", "The job was cancelled.", {})
    elif record.state is State.EXPIRED:
        error = error_of("expired", "The job's deadline passed before it ran.", {})
    else:
        info = record.error
        error = error_of(info.code if info else "internal", info.message if info else "The job failed.", {})
    error.facts["job_id"] = record.id
    return error


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


def instant(seconds: float | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
