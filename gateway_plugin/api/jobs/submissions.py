"""Submissions: a job from the body of a request."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gateway_plugin.admission.keyring import require_model, require_urgent
from gateway_plugin.admission.submission import SubmitOptions, read_options
from gateway_plugin.admission.webhooks import JobWebhooks
from gateway_plugin.api.answers import accepted, preference, result_headers
from gateway_plugin.api.jobs.body import target_of
from gateway_plugin.api.jobs.many import Many, is_many
from gateway_plugin.api.jobs.paths import Route
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.jsonresponses import JsonResponse, json_response
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Jobs, Patience, Prediction, failure
from gateway_plugin.tables.catalog import Catalog, require_open
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import State
from signalbox.wire.names import PRIORITIES


class Submissions:
    """Takes jobs."""

    def __init__(self, jobs: Jobs, catalog: Catalog, codec: BodyCodec, many: Many, webhooks: JobWebhooks) -> None:
        self._jobs = jobs
        self._catalog = catalog
        self._codec = codec
        self._many = many
        self._webhooks = webhooks

    async def submit(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """202 at once, or the job when ``Prefer: wait=n`` was long enough; of many jobs what became of each."""
        if is_many(request):
            return await self._many.submit(request, route, key, self._choose)
        prefer = preference(request.headers.get("Prefer", ""))
        patience = Patience(prefer.wait_s, is_kept=True) if prefer.wait_s is not None else None
        outcome = await self._jobs.submit(key, request, route, partial(self._asked, request, key), patience)
        end = outcome.end
        if end is None:
            return await accepted(self._jobs, key, outcome, prefer)
        if end.record.state is State.EXPIRED:
            raise failure(end.record)
        return json_response(200, await self._jobs.describe(key, outcome.found), result_headers(outcome, prefer))

    async def _asked(self, request: Request, key: ApiKey) -> Prediction:
        encoding = request.headers.get("Content-Encoding", "").lower()
        choose = partial(self._choose, key, request.headers)
        options, ready, inputs = await self._codec.read(key.account_id, request.raw_body, encoding, choose)
        return Prediction(ready, inputs, options)

    def _choose(
        self, key: ApiKey, headers: Mapping[str, str], fields: Mapping[str, Any]
    ) -> tuple[SubmitOptions, PreparedVersion]:
        """What a submission asks for, and the version it is for."""
        name, version, label = target_of(fields)
        require_model(key, name)
        ready = self._catalog.chosen(key, headers, name, version, label)
        require_open(ready.model)
        options = read_options(fields)
        if options.priority == PRIORITIES[0]:
            require_urgent(key)
        return options._replace(webhook=self._webhooks.read(key, fields)), ready
