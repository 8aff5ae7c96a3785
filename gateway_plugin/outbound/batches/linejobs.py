"""Jobs of batches' lines: submitted as the gateway submits its callers', followed to their ends, their results read."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import orjson

from gateway_plugin.admission.keyring import SUBMIT, Keyring, require_model, require_scope
from gateway_plugin.admission.queues import QueueAdmission
from gateway_plugin.admission.submission import SubmitOptions, Submitter
from gateway_plugin.api.openai.objects import error_doc
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.outbound.batches import lines
from gateway_plugin.outbound.batches.lines import Asked
from gateway_plugin.outbound.batches.output import MOST_LINE_BYTES
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.service.batches import Endpoint
from gateway_plugin.service.jobs import failure
from gateway_plugin.service.waiting import End, Waiters
from gateway_plugin.tables.catalog import Catalog, require_open
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.jobs import joblog, payloads
from signalbox.jobs.cancel import OWNER, cancel
from signalbox.jobs.deletion import refusal
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import ResultTooLarge, SignalboxError, meaning
from signalbox.wire.messages import ApiKey, Desired, Model, Serving, State, Worker
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Batch

_STALE_KEYS_S: Final = 14.0
_FAIR_ROOM: Final = 32
"""Places of a queue that jobs in ``lo`` leave to others, as a gateway has it by default."""
_RUNS: Final = 2
"""Of a batch on each device: one that runs, and one that waits for it."""
_PART: Final = 4
"""A batch has one of so many places in a model's queue."""
_RECHECK_S: Final = 10.0
"""How long until an event of a job's end is thought lost."""


class LineJobs:
    """The parts of a gateway that batches need, over the outbound program's connection."""

    def __init__(self, bus: Bus, settings: OutboundSettings) -> None:
        self._bus = bus
        self._keys = Table(bus, Bucket.KEYS, ApiKey, asks_leader=True)
        self._models = Table(bus, Bucket.MODELS, Model, is_packed=True)
        self._serving = Table(bus, Bucket.SERVING, Serving, is_packed=True)
        self._workers = Table(bus, Bucket.WORKERS, Worker)
        self._desired = Table(bus, Bucket.DESIRED, Desired)
        self._keyring = Keyring(self._keys, (), stale_s=_STALE_KEYS_S)
        self._catalog = Catalog(self._models, self._serving)
        self._live = workers = LiveWorkers(self._workers, self._desired)
        self._records = Records(bus)
        self._codec = BodyCodec(settings)
        self._admission = QueueAdmission(bus, workers, fair_room=_FAIR_ROOM)
        self._submitter = Submitter(bus, results_kept_s=settings.results_kept_s, workers=lambda: workers.present)
        self._waiters = Waiters(bus, self._records, recheck_s=_RECHECK_S)

    async def start(self) -> None:
        """Read the tables. Raises :class:`Unavailable`."""
        for table in self._tables:
            await table.start()

    async def close(self) -> None:
        """Idempotent."""
        await self._submitter.close()
        await self._admission.close()
        await self._codec.close()
        for table in self._tables:
            await table.close()

    @property
    def _tables(self) -> tuple[Table[ApiKey], Table[Model], Table[Serving], Table[Worker], Table[Desired]]:
        return self._keys, self._models, self._serving, self._workers, self._desired

    def key_of(self, batch: Batch) -> ApiKey:
        """The key that made a batch. Raises :class:`Unauthorized` where it has ended, :class:`Forbidden` where it may
        submit no more, and :class:`Unavailable`."""
        key = self._keyring.by_id(batch.key_id)
        require_scope(key, SUBMIT)
        return key

    def most_in_flight(self, key: ApiKey, endpoint: Endpoint, window: int) -> int:
        """How many jobs a batch may have open: two runs of each device that serves the model, and no more than the
        window and a quarter of the model's queue. So a live caller waits for no more than what runs."""
        found = self._catalog.find(endpoint.model, key)
        if found is None:
            return window
        at_once = found.batching.max_size if found.batching.rows_independent else 1
        devices = max(1, len(self._live.serving(found)))
        return max(1, min(window, _RUNS * at_once * devices, found.limits.max_queue // _PART))

    async def is_there(self, job_id: str) -> bool:
        """Whether a job was submitted before."""
        return await self._records.find(job_id) is not None

    async def submit(self, batch: Batch, endpoint: Endpoint, job_id: str, asked: Asked) -> None:
        """Submit a line's job, once. Raises what any submission raises; the retryable ones may pass."""
        key = self.key_of(batch)
        require_model(key, endpoint.model)
        choose = partial(self._choose, key, endpoint)
        _, ready, inputs = await self._codec.read(batch.account_id, asked.body, "", choose, Form.PREDICT)
        await self._submitter.require_room(batch.account_id, key.share.result_bytes)
        await self._admission.admit(ready.model, batch.account_id, "lo")
        options = SubmitOptions("lo", max(1.0, batch.deadline_at - time.time()), (batch.id,))
        job = self._submitter.job(key, ready, inputs, options, job_id=job_id)
        seq = await self._submitter.accept(job, inputs.frame, share_bytes=key.share.stored_bytes)
        joblog.accepted(job, seq)

    def _choose(self, key: ApiKey, endpoint: Endpoint, _fields: Mapping[str, Any]) -> tuple[None, PreparedVersion]:
        ready = self._catalog.chosen(key, {}, endpoint.model, endpoint.version)
        require_open(ready.model)
        return None, ready

    async def end_of(self, job_id: str, timeout_s: float) -> End | None:
        """The job's end; None where it has not ended in time."""
        return await self._waiters.follow(job_id, timeout_s)

    async def cancel(self, job_ids: list[str]) -> None:
        """Cancel what has not ended: best effort, as each job's deadline is the batch's."""
        await asyncio.gather(*map(self._cancel, job_ids))

    async def _cancel(self, job_id: str) -> None:
        try:
            found = await self._records.find(job_id)
            if found is not None:
                await cancel(self._bus, self._records, found, by=OWNER, clock=time.time)
        except SignalboxError as error:
            log.warning("batch.job_not_cancelled", job=job_id, reason=error.public_message)

    async def line_of(self, custom_id: str, end: End) -> tuple[bytes, bool]:
        """The line for a job that has ended, and whether it is an error. Raises :class:`Unavailable`."""
        record = end.record
        try:
            if record.deleted_at:
                raise refusal(record)
            if record.state is not State.SUCCEEDED:
                raise failure(record)
            if record.ref is not None and record.ref.size > MOST_LINE_BYTES:
                raise _too_large(record.id)
            frame = end.body if record.ref is None else await payloads.fetch(self._bus, record.ref)
            body = await self._codec.render(record.account_id, frame, record.style, is_strict=True)
            line = lines.answered(record.id, custom_id, 200, body)
            if len(line) > MOST_LINE_BYTES:
                raise _too_large(record.id)
        except SignalboxError as error:
            if error.code == "unavailable":
                raise
            return refused(record.id, custom_id, error), True
        return line, False


def refused(job_id: str, custom_id: str | None, error: SignalboxError) -> bytes:
    """The line for one that was not done."""
    said = error_doc(error)
    code = orjson.dumps({"code": said["code"], "message": said["message"]})
    return lines.answered(job_id, custom_id, meaning(error.code).http, orjson.dumps({"error": said}), code)


def _too_large(job_id: str) -> ResultTooLarge:
    return ResultTooLarge(
        f"The answer is larger than a line of a batch may be, {MOST_LINE_BYTES} bytes. While it is kept, read it with "
        f"GET /v1/jobs/{job_id}/result.",
        job_id=job_id,
    )
