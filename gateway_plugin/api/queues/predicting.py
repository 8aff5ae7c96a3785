"""Predictions that are waited for, at the addresses of the queue product (``POST /api/predict/{model}``).

The client of that product says of every body that it is ``application/octet-stream``, so the body itself tells what it
is: JSON in TensorFlow Serving's predict form, or a TFRequest. The answer is in the same form, with status 200.
"""

from functools import partial
from typing import Final

from msgspec.structs import replace

from gateway_plugin.admission.keyring import SUBMIT, require_model, require_scope
from gateway_plugin.api.answers import job_headers
from gateway_plugin.api.tfserving.monitoring import REST, RequestCounts
from gateway_plugin.api.tfserving.rest import TfServingRest
from gateway_plugin.codec import tfrequest
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Jobs, Prediction
from gateway_plugin.tables.catalog import Catalog, require_open
from signalbox.program.errors import NotFound, UnsupportedEncoding
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.names import MODEL_NAME

_PLAIN: Final = frozenset({"", "identity"})


class Predicting:
    """Answers predictions. serving: what has JSON bodies predicted, as on TensorFlow Serving's paths."""

    def __init__(
        self, jobs: Jobs, catalog: Catalog, serving: TfServingRest, counts: RequestCounts, offloading: Offloading
    ) -> None:
        self._jobs = jobs
        self._catalog = catalog
        self._serving = serving
        self._counts = counts
        self._offloading = offloading

    async def predict(self, request: Request, key: ApiKey, name: str) -> JsonResponse:
        """The whole answer. name: of the model. Raises errors of ours, :class:`NotFound` for a model that is not there
        or closed to the key.
        """
        if MODEL_NAME.match(name) is None:
            raise NotFound("There is no model of that name.")
        if tfrequest.is_one(request.raw_body):
            return await self._arrays(request, key, name)
        return await self._serving.answer(replace(request, url=f"/v1/models/{name}:predict"), key)

    async def _arrays(self, request: Request, key: ApiKey, name: str) -> JsonResponse:
        """The TFResponse to a TFRequest."""
        if request.headers.get("Content-Encoding", "").lower() not in _PLAIN:
            raise UnsupportedEncoding("A TFRequest is taken as it is, without a Content-Encoding.", bound="encoding")
        require_scope(key, SUBMIT)
        require_model(key, name)
        ready = self._catalog.chosen(key, request.headers, name)
        with self._counts.counting(key, name, "Predict", REST):
            require_open(ready.model)
            asked, body = tfrequest.read(request.raw_body), request.raw_body
            reading = partial(tfrequest.decoded, asked, ready)
            inputs = await self._offloading.read(key.account_id, len(body), reading)
            ran = await self._jobs.predict(key, request.headers, Prediction(ready, inputs))
            size = sum(len(tensor.data) for tensor in ran.outputs)
            reply = await self._offloading.write(key.account_id, size, partial(tfrequest.written, ran.outputs))
        return JsonResponse(200, reply, {"Content-Type": tfrequest.CONTENT_TYPE, **job_headers(ran.record)})
