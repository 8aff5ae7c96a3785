"""TensorFlow Serving's REST API, with jobs beside its answers (``Prefer: respond-async``)."""

from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any

from gateway_plugin.admission.keyring import require_model
from gateway_plugin.api.answers import accepted, preference, result_headers
from gateway_plugin.api.tfserving import httprules
from gateway_plugin.api.tfserving.modellist import listed
from gateway_plugin.api.tfserving.monitoring import RequestCounts
from gateway_plugin.api.tfserving.paths import Operation, Route, is_serving, route_of
from gateway_plugin.api.tfserving.views import ModelStatus, metadata
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.jsonresponses import JsonResponse, error_response, json_response
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Jobs, Patience, Prediction
from gateway_plugin.tables.catalog import Catalog, require_open
from signalbox.program.errors import DeadlineExceeded, SignalboxError
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import State


class TfServingRest:
    """Answers requests under TensorFlow Serving's paths. limit_bytes: of a body.

    is_for_pages: whether pages of other origins may call.
    """

    def __init__(
        self,
        jobs: Jobs,
        catalog: Catalog,
        codec: BodyCodec,
        status: ModelStatus,
        counts: RequestCounts,
        limit_bytes: int,
        *,
        is_for_pages: bool = False,
    ) -> None:
        self._jobs = jobs
        self._catalog = catalog
        self._codec = codec
        self._status = status
        self._counts = counts
        self._is_for_pages = is_for_pages
        self.limit_bytes = limit_bytes

    def takes(self, head: str) -> bool:
        """Whether this dialect answers a path."""
        return is_serving(head)

    def keyless(self, request: Request) -> JsonResponse | None:
        """The answer to a browser that asks whether a page may call, and has no key then; None for any other request.

        Raises as :func:`httprules.preflight`.
        """
        if not self._is_for_pages or request.method != "OPTIONS":
            return None
        return self._for_pages(httprules.preflight(request.headers))

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        """The answer that an error stands for."""
        return self._for_pages(error_response(error))

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """The whole answer. Raises errors of ours."""
        route = route_of(request.method, request.url.partition("?")[0])
        if route.model:
            given = await self._about_a_model(request, route, key)
        elif route.operation is Operation.METRICS:
            given = self._counts.page(key.account_id)
        elif route.operation is Operation.PREFLIGHT:
            given = httprules.preflight(request.headers)
        else:
            given = json_response(200, listed(self._catalog, key))
        return self._for_pages(given) if self._is_for_pages else given

    def _for_pages(self, given: JsonResponse) -> JsonResponse:
        """An answer as pages of other origins may read it, if they may."""
        return given._replace(headers={**given.headers, **httprules.CORS}) if self._is_for_pages else given

    async def _about_a_model(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        require_model(key, route.model)
        began, form = perf_counter(), route.operation.form
        try:
            if form is not None:
                given = await self._predict(request, route, key)
            elif route.operation is Operation.STATUS:
                given = json_response(200, self._status.of(key, route.model, route.version, route.label))
            else:
                given = json_response(200, metadata(self._ready(route, key)))
        except SignalboxError as error:
            httprules.explain(error, request.headers.get("Content-Encoding", ""))
            if self._catalog.find(route.model, key) is not None:
                self._counts.refused(key.account_id, route.model, error)
            raise
        self._counts.answered(key.account_id, route.model, form or "", perf_counter() - began)
        return given

    async def _predict(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """The answer, 504 with the job's id when time is up; where the caller prefers it 202 with the job."""
        prefer = preference(request.headers.get("Prefer", ""))
        is_waiting = not prefer.is_async or prefer.wait_s is not None
        patience = Patience(prefer.wait_s, is_answer_all=not prefer.is_async) if is_waiting else None
        read = partial(self._read, request, route, key)
        outcome = await self._jobs.submit(key, request, route, read, patience)
        end = outcome.end
        if end is None:
            if not prefer.is_async:
                raise DeadlineExceeded("Timed out", job_id=outcome.found.record.id)
            return await accepted(self._jobs, key, outcome, prefer)
        if end.record.state is State.EXPIRED:
            raise DeadlineExceeded("Timed out: the job's deadline passed before it ran.", job_id=end.record.id)
        return JsonResponse(200, await self._jobs.result(end), result_headers(outcome, prefer))

    async def _read(self, request: Request, route: Route, key: ApiKey) -> Prediction:
        """The inputs of a body, for the version that its path says."""
        form = route.operation.form
        assert form is not None, "other operations have no body"
        encoding = request.headers.get("Content-Encoding", "")
        if encoding:
            encoding = httprules.encoding_of(encoding.lower())
        choose = partial(self._choose, route, key, request.headers)
        _, ready, inputs = await self._codec.read(key.account_id, request.raw_body, encoding, choose, form)
        return Prediction(ready, inputs)

    def _choose(
        self, route: Route, key: ApiKey, headers: Mapping[str, str], _fields: Mapping[str, Any]
    ) -> tuple[None, PreparedVersion]:
        ready = self._catalog.chosen(key, headers, route.model, route.version, route.label)
        require_open(ready.model)
        return None, ready

    def _ready(self, route: Route, key: ApiKey) -> PreparedVersion:
        return self._catalog.ready(route.model, route.version, route.label, key)
