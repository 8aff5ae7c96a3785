"""The post hook: every request that got past the front's checks, answered here.

A prediction is accepted durably before anything is answered. A caller that waits gets its answer by the worker's
reply, and otherwise fetches the job later by the id that every answer carries.
"""

import contextlib
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final

from gateway_plugin.admission.acceptance import Acceptance
from gateway_plugin.admission.addresses import client_address
from gateway_plugin.admission.idempotency import REPLAYED
from gateway_plugin.admission.keyring import (
    CANCEL,
    READ,
    SUBMIT,
    Keyring,
    account_of,
    require_model,
    require_scope,
    require_urgent,
)
from gateway_plugin.admission.pool import Pool
from gateway_plugin.admission.submission import SubmitOptions, read_options
from gateway_plugin.api.jobbody import require_empty, target_of
from gateway_plugin.api.modellist import listed
from gateway_plugin.api.predictions import Predictions, job_headers
from gateway_plugin.api.preferences import Preference, preference
from gateway_plugin.api.routes import Operation, Route
from gateway_plugin.api.routing import route_of
from gateway_plugin.api.tfserving import httprules
from gateway_plugin.api.tfserving.monitoring import RequestCounts
from gateway_plugin.api.tfserving.views import ModelStatus, metadata
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.hooks.auth import KEY_ID
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.service.jobs import JobService, failure
from gateway_plugin.service.jsonresponses import (
    JOB_ID,
    JSON,
    JsonResponse,
    is_serving,
    json_response,
    refusal,
    retry_after,
)
from gateway_plugin.service.request import Request
from gateway_plugin.service.waiting import End
from gateway_plugin.settings import GatewaySettings
from gateway_plugin.tables.catalog import Catalog, require_open
from signalbox.jobs.records import Found
from signalbox.program.errors import DeadlineExceeded, SignalboxError
from signalbox.wire.messages import ApiKey, Record, State
from signalbox.wire.names import PRIORITIES


class Post:
    """The SignalboxPost hook."""

    def __init__(
        self,
        settings: GatewaySettings,
        keyring: Keyring,
        catalog: Catalog,
        codec: BodyCodec,
        acceptance: Acceptance,
        predictions: Predictions,
        jobs: JobService,
        status: ModelStatus,
        counts: RequestCounts,
        bodies: Pool,
    ) -> None:
        self._settings = settings
        self._keyring = keyring
        self._catalog = catalog
        self._codec = codec
        self._acceptance = acceptance
        self._predictions = predictions
        self._jobs = jobs
        self._status = status
        self._counts = counts
        self._bodies = bodies

    async def hook(self, obj: Object) -> JsonResponse:
        """The whole answer to a request. Raises errors of ours; the dispatcher renders them."""
        asked = obj.request
        request = Request(asked.method, asked.url, asked.headers, asked.raw_body)
        key = self.key(request, obj.metadata.get(KEY_ID, ""))
        account, size = account_of(key), len(request.raw_body)
        self._bodies.take(account, size)
        try:
            return await self.answer(request, key)
        finally:
            self._bodies.release(account, size)

    def key(self, request: Request, key_id: str) -> ApiKey:
        """The key that the auth hook let in, which may have ended since. Raises as :meth:`Keyring.by_id`."""
        key = self._keyring.by_id(key_id)
        if key.networks:
            self._keyring.require_address(key, client_address(request.headers, self._settings.trusted_proxies))
        return key

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """As :meth:`hook`, of a request whose body is in ``bodies``, and whose ``key`` is that of :meth:`key`."""
        route = route_of(request.method, request.url.partition("?")[0])
        operation = route.operation
        if route.model:
            return await self._served(request, route, key)
        if operation is Operation.SUBMIT:
            return await self._create(request, route, key, Form.JOB)
        if operation is Operation.READ_JOB:
            return await self._read_job(route, key)
        if operation is Operation.CANCEL_JOB:
            return await self._cancel_job(request, route, key)
        if operation is Operation.TFS_METRICS:
            return self._counts.page(account_of(key))
        if operation is Operation.TFS_PREFLIGHT:
            return httprules.preflight(request.headers)
        return json_response(200, listed(self._catalog, key))

    async def _served(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """A call of TensorFlow Serving's about a model."""
        require_model(key, route.model)
        began, form = perf_counter(), route.operation.form
        try:
            if form is not None:
                given = await self._create(request, route, key, form)
            elif route.operation is Operation.TFS_STATUS:
                given = json_response(200, self._status.of(route.model, route.version, route.label))
            else:
                given = json_response(200, metadata(self._catalog.ready(route.model, route.version, route.label)))
        except SignalboxError as error:
            httprules.explain(error, request.headers.get("Content-Encoding", ""))
            if self._catalog.find(route.model) is not None:
                self._counts.refused(account_of(key), route.model, error)
            raise
        self._counts.answered(account_of(key), route.model, form or "", perf_counter() - began)
        return given

    # ------------------------------------------------------------------ submissions

    async def _create(self, request: Request, route: Route, key: ApiKey, form: Form) -> JsonResponse:
        """A job of either dialect.

        TensorFlow Serving's calls wait by default, 504 with the job's id when time is up. Our job API answers 202 at
        once, or with the job when ``Prefer: wait=n`` was long enough.
        """
        require_scope(key, SUBMIT)
        is_prediction = form is not Form.JOB
        headers = request.headers
        prefer = preference(headers.get("Prefer", ""))
        is_sync = is_prediction and not prefer.is_async
        is_waiting = is_sync or prefer.wait_s is not None
        idem = await self._acceptance.look_up(request, key, *route.parts)
        if idem is not None and idem.found is not None:
            found = idem.found
            end = await self._earlier(found, prefer, key, is_waiting=is_waiting)
            if end is not None:
                given = await self._ended(end, prefer, is_prediction=is_prediction)
            else:
                given = await self._going_on(found, prefer, is_sync=is_sync)
            return given._replace(headers={**given.headers, REPLAYED: "true"})

        choose = partial(self._choose, route, key)
        body, encoding = request.raw_body, headers.get("Content-Encoding", "").lower()
        if encoding and is_prediction:
            encoding = httprules.encoding_of(encoding)
        if self._codec.is_small(body, encoding):
            options, ready, inputs = self._codec.read_here(body, choose, form)
        else:
            options, ready, inputs = await self._codec.read_elsewhere(account_of(key), body, encoding, choose, form)
        # A caller that asked for an id, or may ask again under a key, is promised the result for a day.
        submission = await self._acceptance.admit(
            headers,
            key,
            ready,
            inputs,
            options,
            idem,
            is_waiting=is_waiting,
            is_short_lived=is_sync and idem is None,
        )
        if not is_waiting:
            seq = await self._acceptance.write(submission)
            return await self._accepted_answer(Found.unclaimed(submission.job, seq), prefer, options)
        wait_s = ready.model.limits.sync_wait_s if prefer.wait_s is None else prefer.wait_s
        end = await self._predictions.complete(submission, wait_s, key, is_kept=not is_prediction)
        if end is None:
            return await self._going_on(Found.unclaimed(submission.job), prefer, options, is_sync=is_sync)
        return await self._ended(end, prefer, is_prediction=is_prediction)

    def _choose(self, route: Route, key: ApiKey, fields: Mapping[str, Any]) -> tuple[SubmitOptions, PreparedVersion]:
        """What a submission asks for, and the version it is for: a prediction's is in its path, a job's in its body."""
        if route.model:
            ready = self._catalog.ready(route.model, route.version, route.label)
            require_open(ready.model)
            return _NO_OPTIONS, ready
        name, version, label = target_of(fields)
        require_model(key, name)
        ready = self._catalog.ready(name, version, label)
        require_open(ready.model)
        options = read_options(fields)
        if options.priority == PRIORITIES[0]:
            require_urgent(key)
        return options, ready

    async def _earlier(self, found: Found, prefer: Preference, key: ApiKey, *, is_waiting: bool) -> End | None:
        """The end of a job that was submitted before; None where it has none yet, or not within the wait."""
        if not is_waiting and not found.record.state.is_terminal:
            return None
        return await self._predictions.follow(found, prefer.wait_s, key)

    async def _going_on(
        self, found: Found, prefer: Preference, options: SubmitOptions | None = None, *, is_sync: bool
    ) -> JsonResponse:
        """The answer to who submitted a job that has not ended in time. found: as it was last known."""
        if is_sync:
            raise DeadlineExceeded("Timed out", job_id=found.record.id)
        with contextlib.suppress(SignalboxError):
            found = await self._jobs.find(found.record.id, found.record.account_id)
        return await self._accepted_answer(found, prefer, options)

    async def _ended(self, end: End, prefer: Preference, *, is_prediction: bool) -> JsonResponse:
        """The answer to who submitted a job that has ended: its result, or the whole of it."""
        record = end.record
        if not is_prediction:
            if record.state is State.EXPIRED:
                raise failure(record)
            doc = await self._jobs.describe(Found(record, 0, end.body))
            return json_response(200, doc, _result_headers(record, prefer))
        if record.state is State.EXPIRED:
            raise DeadlineExceeded("Timed out: the job's deadline passed before it ran.", job_id=record.id)
        return JsonResponse(200, await self._jobs.result(end), _result_headers(record, prefer))

    async def _accepted_answer(
        self, found: Found, prefer: Preference, options: SubmitOptions | None = None
    ) -> JsonResponse:
        """202: the job exists. Place and estimate are what is known now. options: None for a job of an earlier call."""
        doc = await self._jobs.describe(found)
        if options is not None and found.record.priority != options.priority:
            doc["demoted_from"] = options.priority
        job_id = found.record.id
        headers = {
            "Location": f"/v1/jobs/{job_id}",
            "Retry-After": str(retry_after(doc["estimated_wait_s"])),
            JOB_ID: job_id,
        }
        if prefer.applied:
            headers["Preference-Applied"] = prefer.applied
        return json_response(202, doc, headers)

    # ------------------------------------------------------------------ jobs

    async def _read_job(self, route: Route, key: ApiKey) -> JsonResponse:
        require_scope(key, READ)
        found = await self._jobs.find(route.job_id, account_of(key))
        record = found.record
        if record.state is State.EXPIRED:
            raise failure(record)
        doc = await self._jobs.describe(found)
        headers = {JOB_ID: record.id}
        if not record.state.is_terminal:
            headers["Retry-After"] = str(retry_after(doc["estimated_wait_s"]))
        return json_response(200, doc, headers)

    async def _cancel_job(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        require_scope(key, CANCEL)
        require_empty(request.raw_body)
        found = await self._jobs.cancel(route.job_id, account_of(key))
        status = 200 if found.record.state.is_terminal else 202
        doc = await self._jobs.describe(found, with_result=False)
        return json_response(status, doc, {JOB_ID: found.record.id})


class PostDialect:
    """What the post hook answers, for a listener of this process: TensorFlow Serving's REST API, or the job API.

    origins: whose pages may call TensorFlow Serving's.
    """

    def __init__(self, post: Post, origins: httprules.CrossOrigin, limit_bytes: int, *, is_serving: bool) -> None:
        self._post = post
        self._origins = origins
        self._is_serving = is_serving
        self.limit_bytes = limit_bytes

    def takes(self, url: str) -> bool:
        """See :class:`gateway_plugin.api.dialect.Dialect`."""
        return is_serving(url) == self._is_serving

    def keyless(self, request: Request) -> JsonResponse | None:
        """See :class:`gateway_plugin.api.dialect.Dialect`."""
        found = self._origins.preflight(request.method, request.url, request.headers)
        return None if found is None else self._origins.let_in(request.url, found)

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """See :class:`gateway_plugin.api.dialect.Dialect`."""
        return self._origins.let_in(request.url, await self._post.answer(request, key))

    def refusal(self, error: SignalboxError) -> JsonResponse:
        """See :class:`gateway_plugin.api.dialect.Dialect`."""
        url = _SERVING if self._is_serving else _JOBS
        return self._origins.let_in(url, refusal(error, url))


_SERVING: Final = "/v1/models"
_JOBS: Final = "/v1/jobs"
_NO_OPTIONS: Final = SubmitOptions()


def _result_headers(record: Record, prefer: Preference) -> dict[str, str]:
    headers = {"Content-Type": JSON, **job_headers(record)}
    if prefer.applied:
        headers["Preference-Applied"] = prefer.applied
    return headers
