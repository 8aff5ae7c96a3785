"""Reads of one job: its document, and its result by itself."""

from gateway_plugin.api.answers import preference
from gateway_plugin.api.jobs.paths import Operation, Route
from gateway_plugin.api.jobs.results import Results, etag, is_known
from gateway_plugin.jsonresponses import JOB_ID, JsonResponse, json_response, retry_after
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Jobs, failure
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import State


class Reads:
    """Shows jobs."""

    def __init__(self, jobs: Jobs, results: Results) -> None:
        self._jobs = jobs
        self._results = results

    async def read(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """The job, or its result, after the wait that was asked for."""
        prefer = preference(request.headers.get("Prefer", ""))._replace(is_async=False)
        found = await self._jobs.awaited(key, await self._jobs.find(key, route.job_id), prefer.wait_s)
        record = found.record
        if record.state is State.EXPIRED:
            raise failure(record)
        headers = {JOB_ID: record.id}
        if prefer.applied:
            headers["Preference-Applied"] = prefer.applied
        if route.operation is Operation.RESULT:
            return await self._results.answer(request, key, found, headers)
        if record.state.is_terminal:
            headers["Etag"] = etag(record, "job")
            if is_known(request, headers["Etag"]):
                return JsonResponse(304, b"", headers)
        doc = await self._jobs.describe(key, found)
        if not record.state.is_terminal:
            headers["Retry-After"] = str(retry_after(doc["estimated_wait_s"]))
        return json_response(200, doc, headers)
