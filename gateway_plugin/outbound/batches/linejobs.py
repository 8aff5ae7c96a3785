"""Jobs of batches' lines: submitted as the gateway submits its callers', followed to their ends, their results read."""

import time
from typing import Final

import orjson

from gateway_plugin.admission.keyring import require_model
from gateway_plugin.admission.submission import SubmitOptions
from gateway_plugin.api.openai.objects import error_doc
from gateway_plugin.outbound.accountjobs import AccountJobs
from gateway_plugin.outbound.batches import lines
from gateway_plugin.outbound.batches.lines import Asked
from gateway_plugin.outbound.batches.output import MOST_LINE_BYTES
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.service.batches import Endpoint
from gateway_plugin.service.waiting import End
from signalbox.bus.client import Bus
from signalbox.program.errors import ResultTooLarge, SignalboxError, meaning
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.outbound import Batch

_PRIORITY: Final = "lo"


class LineJobs:
    """Does lines' jobs, over the outbound program's connection."""

    def __init__(self, bus: Bus, settings: OutboundSettings) -> None:
        self._jobs = jobs = AccountJobs(bus, settings)
        self.start = jobs.start
        self.close = jobs.close
        self.end_of = jobs.end_of
        self.cancel = jobs.cancel

    def key_of(self, batch: Batch) -> ApiKey:
        """The key that made a batch. Raises as :meth:`AccountJobs.key`."""
        return self._jobs.key(batch.key_id)

    def most_in_flight(self, key: ApiKey, endpoint: Endpoint, window: int) -> int:
        """How many jobs a batch may have open, see :meth:`AccountJobs.most_in_flight`."""
        return self._jobs.most_in_flight(key, endpoint.model, window)

    async def is_there(self, job_id: str) -> bool:
        """Whether a job was submitted before."""
        return await self._jobs.find(job_id) is not None

    async def submit(self, batch: Batch, endpoint: Endpoint, job_id: str, asked: Asked) -> None:
        """Submit a line's job, once. Raises what any submission raises; the retryable ones may pass."""
        key = self.key_of(batch)
        require_model(key, endpoint.model)
        ready, inputs = await self._jobs.read(key, asked.body, endpoint.model, endpoint.version)
        await self._jobs.require_room(key)
        options = SubmitOptions(_PRIORITY, max(1.0, batch.deadline_at - time.time()), (batch.id,))
        await self._jobs.submit(key, ready, inputs, options, job_id)

    async def line_of(self, custom_id: str, end: End) -> tuple[bytes, bool]:
        """The line for a job that has ended, and whether it is an error. Raises :class:`Unavailable`."""
        record = end.record
        try:
            frame = await self._jobs.frame_of(end, MOST_LINE_BYTES)
            if frame is None:
                raise _too_large(record.id)
            body = await self._jobs.codec.render(record.account_id, frame, record.style, is_strict=True)
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
