"""A job's result by itself: as JSON, as tensors of the Open Inference Protocol, or as an archive of numpy's."""

import re
from enum import StrEnum
from typing import Any, Final

from gateway_plugin.codec.archive import npz
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.codec.oip import outputs as oipoutputs
from gateway_plugin.codec.oip.request import HEADER
from gateway_plugin.jsonresponses import JsonResponse, retry_after
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Jobs
from gateway_plugin.service.waiting import End
from signalbox.jobs.records import Found
from signalbox.program.errors import Conflict, NoLongerKept, NotFound, SignalboxError
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Record, State

_WEIGHT: Final = re.compile(r"\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*\Z", re.IGNORECASE)


class Form(StrEnum):
    """What a result can be, by media type."""

    JSON = "application/json"
    TENSORS = "application/octet-stream"
    NPZ = "application/x-npz"
    ZIP = "application/zip"


def form_of(accept: str) -> Form:
    """The form that an ``Accept`` names with the highest weight, the first of several; JSON where it names none."""
    best, weight = Form.JSON, 0.0
    for part in accept.split(","):
        media, *parameters = part.split(";")
        try:
            form = Form(media.strip().lower())
        except ValueError:
            continue
        found = next((float(one[1]) for one in map(_WEIGHT.match, parameters) if one is not None), 1.0)
        if found > weight:
            best, weight = form, found
    return best


def etag(record: Record, of: str) -> str:
    """The entity tag of what is shown ``of`` an ended job, which does not change any more."""
    return f'W/"{record.id}.{record.state}.{of.rpartition("/")[2]}"'


def is_known(request: Request, tag: str) -> bool:
    """Whether the caller has what ``tag`` stands for (``If-None-Match``)."""
    known = request.headers.get("If-None-Match", "")
    bare = tag.removeprefix("W/")
    return known.strip() == "*" or any(one.strip().removeprefix("W/") == bare for one in known.split(","))


class Results:
    """Answers for the results of jobs. limit_bytes: of an archive's strings."""

    def __init__(self, jobs: Jobs, offloading: Offloading, limit_bytes: int) -> None:
        self._jobs = jobs
        self._offloading = offloading
        self._limit_bytes = limit_bytes

    async def answer(self, request: Request, key: ApiKey, found: Found, headers: dict[str, str]) -> JsonResponse:
        """The result of a job that did not expire. headers: what the answer says of the job.

        Raises :class:`Conflict` where the job has none, :class:`NoLongerKept` where it is no longer stored, and as
        :meth:`Jobs.result` and :meth:`Jobs.outputs`.
        """
        record = found.record
        if record.state is not State.SUCCEEDED:
            raise await self._missing(key, found)
        form = form_of(request.headers.get("Accept", ""))
        headers |= {"Content-Type": form.value, "Etag": etag(record, form.value), "Vary": "Accept"}
        if is_known(request, headers["Etag"]):
            return JsonResponse(304, b"", headers)
        try:
            return await self._written(key, End(record, found.body), form, headers)
        except NotFound as error:
            raise NoLongerKept(
                "The job succeeded, and its result is no longer stored. Submit it again.", job_id=record.id
            ) from error
        except SignalboxError as error:
            error.facts["job_id"] = record.id
            raise

    async def _written(self, key: ApiKey, end: End, form: Form, headers: dict[str, str]) -> JsonResponse:
        record = end.record
        if form is Form.JSON:
            return JsonResponse(200, await self._jobs.result(end, is_strict=True), headers)
        outputs = await self._jobs.outputs(end)
        if form is Form.TENSORS:
            head = {"model_name": record.model, "model_version": str(record.version), "id": record.id}
            body, header_bytes = oipoutputs.answer(head, outputs, {tensor.name for tensor in outputs}, b"")
            return JsonResponse(200, body, headers | {HEADER: str(header_bytes or len(body))})
        size, limit_bytes = sum(len(tensor.data) for tensor in outputs), self._limit_bytes
        body = await self._offloading.write(key.account_id, size, lambda: npz(outputs, limit_bytes))
        return JsonResponse(200, body, headers)

    async def _missing(self, key: ApiKey, found: Found) -> Conflict:
        """Why there is no result, and what to do."""
        record = found.record
        facts: dict[str, Any] = {"state": record.state.value, "job_id": record.id}
        if not record.state.is_terminal:
            wait_s = (await self._jobs.describe(key, found))["estimated_wait_s"]
            return Conflict(
                f"The job has no result yet, it is {record.state}: ask again, or wait for it with Prefer: wait=60.",
                retry_after_s=retry_after(wait_s),
                **facts,
            )
        if record.error is None:
            return Conflict(f"The job has no result, as it was {record.state}: submit it again.", **facts)
        code, message = record.error.code, record.error.message
        ended, mend = f"was {record.state}", "Submit it again."
        if record.state is State.FAILED:
            ended, mend = "failed", "Mend that and submit it again."
        return Conflict(
            f"The job has no result, as it {ended}: {message.rstrip('.')}. {mend}",
            error={"code": code, "message": message},
            **facts,
        )
