"""The job API over HTTP, and the answer to every path that is nobody's."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gateway_plugin.admission.keyring import CANCEL, require_model, require_scope, require_urgent
from gateway_plugin.admission.submission import SubmitOptions, read_options
from gateway_plugin.api.answers import accepted, preference, result_headers
from gateway_plugin.api.jobs.body import require_empty, target_of
from gateway_plugin.api.jobs.paths import Operation, Route, route_of
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.jsonresponses import JOB_ID, JsonResponse, json_response, problem_response, retry_after
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Jobs, Patience, Prediction, failure
from gateway_plugin.tables.catalog import Catalog, require_open
from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import ApiKey, State
from signalbox.wire.names import PRIORITIES


class JobsRest:
    """The dialect of ``/v1/jobs`` and ``/v1/predict``, and of what no other takes. limit_bytes: of a body."""

    def __init__(self, jobs: Jobs, catalog: Catalog, codec: BodyCodec, limit_bytes: int) -> None:
        self._jobs = jobs
        self._catalog = catalog
        self._codec = codec
        self.limit_bytes = limit_bytes

    def takes(self, _head: str) -> bool:
        """Whether this dialect answers a path."""
        return True

    def keyless(self, _request: Request) -> None:
        """The answer to a request without a key; None where one is needed."""

    def refusal(self, error: SignalboxError) -> JsonResponse:
        """An RFC 9457 problem."""
        return problem_response(error)

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """The whole answer. Raises errors of ours."""
        route = route_of(request.method, request.url.partition("?")[0])
        if route.operation is Operation.SUBMIT:
            return await self._submit(request, route, key)
        if route.operation is Operation.CANCEL:
            return await self._cancel(request, route, key)
        return await self._read(route, key)

    async def _submit(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """202 at once, or the job when ``Prefer: wait=n`` was long enough."""
        prefer = preference(request.headers.get("Prefer", ""))
        patience = Patience(prefer.wait_s, is_kept=True) if prefer.wait_s is not None else None
        outcome = await self._jobs.submit(key, request, route, partial(self._asked, request, key), patience)
        end = outcome.end
        if end is None:
            return await accepted(self._jobs, outcome, prefer)
        if end.record.state is State.EXPIRED:
            raise failure(end.record)
        return json_response(200, await self._jobs.describe(outcome.found), result_headers(outcome, prefer))

    async def _asked(self, request: Request, key: ApiKey) -> Prediction:
        encoding = request.headers.get("Content-Encoding", "").lower()
        choose = partial(self._choose, key)
        options, ready, inputs = await self._codec.read(key.account_id, request.raw_body, encoding, choose)
        return Prediction(ready, inputs, options)

    def _choose(self, key: ApiKey, fields: Mapping[str, Any]) -> tuple[SubmitOptions, PreparedVersion]:
        """What a submission asks for, and the version it is for."""
        name, version, label = target_of(fields)
        require_model(key, name)
        ready = self._catalog.ready(name, version, label, key)
        require_open(ready.model)
        options = read_options(fields)
        if options.priority == PRIORITIES[0]:
            require_urgent(key)
        return options, ready

    async def _read(self, route: Route, key: ApiKey) -> JsonResponse:
        found = await self._jobs.find(key, route.job_id)
        record = found.record
        if record.state is State.EXPIRED:
            raise failure(record)
        doc = await self._jobs.describe(found)
        headers = {JOB_ID: record.id}
        if not record.state.is_terminal:
            headers["Retry-After"] = str(retry_after(doc["estimated_wait_s"]))
        return json_response(200, doc, headers)

    async def _cancel(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        require_scope(key, CANCEL)  # before the body is looked at
        require_empty(request.raw_body)
        found = await self._jobs.cancel(key, route.job_id)
        status = 200 if found.record.state.is_terminal else 202
        doc = await self._jobs.describe(found, with_result=False)
        return json_response(status, doc, {JOB_ID: found.record.id})
