"""The Open Inference Protocol over HTTP."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from gateway_plugin.admission.keyring import require_urgent
from gateway_plugin.api.answers import Preference, accepted, job_headers, preference, result_headers
from gateway_plugin.api.oip import options, paths, views
from gateway_plugin.api.oip.inference import Inference, InferenceResult, narrowed
from gateway_plugin.api.oip.options import InferOptions
from gateway_plugin.api.oip.paths import Operation, Route
from gateway_plugin.api.oip.targets import Targets
from gateway_plugin.api.oip.views import ModelViews
from gateway_plugin.codec.bodies import BodyCodec, DecodedInputs
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.codec.oip import outputs as oipoutputs
from gateway_plugin.codec.oip.outputs import FLAT
from gateway_plugin.codec.oip.request import HEADER
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.jsonresponses import JSON, JsonResponse, error_response, json_response
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Jobs, Prediction, failure
from gateway_plugin.service.loading import Loading
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import InvalidRequest, NotServing, SignalboxError, TooLarge
from signalbox.wire import tensors
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import State
from signalbox.wire.names import PRIORITIES

_BINARY: Final = "application/octet-stream"
_INDEX_BOUNDS: Final = Bounds(65_536, 1_000)
_MOST_DIGITS: Final = 12
_PREFIX: Final = "/v2"


class OipRest:
    """Answers requests below ``/v2``.

    is_healthy: whether requests can be accepted now. max_binary_bytes: of a body that has tensors as bytes.
    """

    def __init__(
        self,
        targets: Targets,
        model_views: ModelViews,
        inference: Inference,
        jobs: Jobs,
        loading: Loading,
        codec: BodyCodec,
        offloading: Offloading,
        *,
        is_healthy: Callable[[], bool],
        max_binary_bytes: int,
    ) -> None:
        self._targets = targets
        self._views = model_views
        self._inference = inference
        self._jobs = jobs
        self._loading = loading
        self._codec = codec
        self._offloading = offloading
        self._is_healthy = is_healthy
        self.limit_bytes = max_binary_bytes

    def takes(self, head: str) -> bool:
        """Whether this dialect answers a path."""
        return head.startswith(_PREFIX)

    def keyless(self, request: Request) -> JsonResponse | None:
        """The answer to a question for the health of the server or of a model; None for any other request."""
        path = request.url.partition("?")[0]
        if not paths.is_keyless(request.method, path):
            return None
        route = paths.route_of(request.method, path)
        if route.operation is Operation.LIVE:
            return json_response(200, {"live": True})
        if route.operation is Operation.READY:
            is_ready = self._is_healthy()
            return json_response(200 if is_ready else 503, {"ready": is_ready})
        return self._model_ready(route)

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        """The answer that an error stands for; its Content-Type is bare, as KServe's client wants it."""
        return error_response(error)

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """The whole answer to a request that :meth:`keyless` has none for. Raises errors of ours."""
        route = paths.route_of(request.method, request.url.partition("?")[0])
        if route.operation is Operation.INFER:
            is_async = preference(request.headers.get("Prefer", "")).is_async
            return await (self._submit if is_async else self._infer)(request, key, route)
        return json_response(200, await self._shown(request, key, route))

    async def _shown(self, request: Request, key: ApiKey, route: Route) -> Any:
        """What there is to see of the server and its models, and what is done to them."""
        operation = route.operation
        if operation is Operation.SERVER:
            return views.SERVER
        if operation is Operation.MODELS:
            return {"models": [model.name for model in self._targets.all(key)]}
        if operation is Operation.INDEX:
            return await self._views.index(self._targets.all(key), is_ready=_only_ready(request.raw_body))
        if operation is Operation.LOAD:
            _refuse_files(request.raw_body)
            await self._loading.load(key, route.model)
            return {}
        if operation is Operation.UNLOAD:
            await self._loading.unload(key, route.model)
            return {}
        if operation is Operation.STATISTICS:
            return self._inference.statistics(key, route.model, route.version)
        ready = self._targets.version(key, route.model, route.version)
        if operation is Operation.CONFIG:
            return views.config(ready)
        return views.metadata(ready)

    def _model_ready(self, route: Route) -> JsonResponse:
        """Whether a job could run now, for anybody: those who watch over a service have no key."""
        if why := self._views.unready(self._targets.version_for_anybody(route.model, route.version)):
            raise NotServing(why, model=route.model)
        return json_response(200, {"name": route.model, "ready": True})

    async def _infer(self, request: Request, key: ApiKey, route: Route) -> JsonResponse:
        ready = self._inference.target(key, request.headers, route.model, route.version)
        asked, inputs = await self._read(request, key, ready)
        found = await self._inference.run(key, request.headers, ready, inputs, asked)
        return await self._answered(key, found, asked)

    async def _submit(self, request: Request, key: ApiKey, route: Route) -> JsonResponse:
        """202 with a job, whose result is read as any job's; 200 where an earlier call with the Idempotency-Key
        submitted it, and it has ended.
        """
        target = (*route, request.headers.get(HEADER, ""))
        outcome = await self._jobs.submit(key, request, target, partial(self._asked, request, key, route), None)
        prefer = Preference(is_async=True)
        if outcome.end is None:
            return await accepted(self._jobs, key, outcome, prefer)
        if outcome.end.record.state is State.EXPIRED:
            raise failure(outcome.end.record)
        return json_response(200, await self._jobs.describe(key, outcome.found), result_headers(outcome, prefer))

    async def _asked(self, request: Request, key: ApiKey, route: Route) -> Prediction:
        ready = self._inference.target(key, request.headers, route.model, route.version)
        asked, inputs = await self._read(request, key, ready, is_job=True)
        if asked.submit.priority == PRIORITIES[0]:
            require_urgent(key)
        submit = asked.submit
        if asked.timeout_s is not None and submit.deadline_s is None:
            submit = submit._replace(deadline_s=min(asked.timeout_s, ready.model.limits.deadline_s))
        return Prediction(ready, narrowed(inputs, asked), submit)

    async def _read(
        self, request: Request, key: ApiKey, ready: PreparedVersion, *, is_job: bool = False
    ) -> tuple[InferOptions, DecodedInputs]:
        """Options and inputs of a body: JSON that is large, or compressed, is read by another process, and tensors that
        are large by a thread.
        """
        headers, body = request.headers, request.raw_body
        header_bytes = _header_bytes(headers.get(HEADER))
        encoding = headers.get("Content-Encoding", "").lower()

        def choose(fields: Mapping[str, Any]) -> tuple[InferOptions, PreparedVersion]:
            asked = options.read(ready, fields, is_binary=header_bytes == 0, is_job=is_job)
            options.require_json(asked)
            return asked, ready

        text = body if header_bytes is None else body[:header_bytes]
        if self._codec.is_small(text, encoding):
            self._require_taken(body)

            def read(_most_fields: int) -> tuple[InferOptions, PreparedVersion, DecodedInputs]:
                return self._codec.read_here(body, choose, Form.INFER, header_bytes)

            asked, _, inputs = await self._offloading.read(key.account_id, len(body), read)
        else:
            asked, _, inputs = await self._codec.read_elsewhere(
                key.account_id, body, encoding, choose, Form.INFER, header_bytes, self.limit_bytes
            )
        return asked, inputs

    def _require_taken(self, body: bytes) -> None:
        if len(body) > self.limit_bytes:
            raise TooLarge(
                f"The body has {len(body)} bytes; at most {self.limit_bytes} are taken.",
                bound="bytes",
                limit_bytes=self.limit_bytes,
            )

    async def _answered(self, key: ApiKey, found: InferenceResult, asked: InferOptions) -> JsonResponse:
        record = found.record
        as_json = [tensor for tensor in found.outputs if tensor.name not in asked.binary]
        try:
            lines = await self._codec.render(key.account_id, tensors.encode(as_json), FLAT) if as_json else b""
        except SignalboxError as error:
            error.facts["job_id"] = record.id
            raise
        body, header_bytes = oipoutputs.answer(found.head, found.outputs, asked.binary, lines)
        headers = {"Content-Type": JSON if header_bytes is None else _BINARY, **job_headers(record)}
        if header_bytes is not None:
            headers[HEADER] = str(header_bytes)
        return JsonResponse(200, body, headers)


def _header_bytes(text: str | None) -> int | None:
    """The length of the JSON before the bytes of tensors; None where all of the body is JSON."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidRequest(f"{HEADER} must be a whole number, not {text[:40]!r}.")
    return int(text)


def _only_ready(body: bytes) -> bool:
    """Whether an index is to have only what could run now. Clients send an empty body, ``null`` or an object."""
    if body.strip() in {b"", b"null"}:
        return False
    value = parse(body, _INDEX_BOUNDS).doc.get("ready", False)
    if type(value) is not bool:
        raise InvalidRequest('"ready" must be true or false.', field="ready")
    return value


def _refuse_files(body: bytes) -> None:
    """Raise :class:`InvalidRequest` for a load that brings files. Clients send ``{}`` or nothing."""
    if body.strip() in {b"", b"null"}:
        return
    value = parse(body, _INDEX_BOUNDS).doc.get("parameters", {})
    options.refuse_files(value)
