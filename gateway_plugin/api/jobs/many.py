"""Many jobs in the body of one request: ``{"jobs": [{...}, ...]}``."""

import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from gateway_plugin.admission.idempotency import REPLAYED
from gateway_plugin.admission.submission import SubmitOptions
from gateway_plugin.api.answers import preference
from gateway_plugin.api.jobs.paths import Route
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.decoder import ENCODINGS
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.jsonresponses import JsonResponse, json_response, problem
from gateway_plugin.request import Request
from gateway_plugin.service.descriptions import urls
from gateway_plugin.service.jobs import Prediction
from gateway_plugin.service.many import Became, ManyJobs
from signalbox.program.errors import InvalidRequest, SignalboxError
from signalbox.wire.keydocs import ApiKey

_MANY: Final = re.compile(rb'\s*+\{\s*+"jobs"\s*+:')
"""How a body with many jobs begins: it has no other field."""
_PATH: Final = "/v1/jobs"
_HEAD_BYTES: Final = 256
Choose = Callable[[ApiKey, Mapping[str, str], Mapping[str, Any]], tuple[SubmitOptions, PreparedVersion]]
"""What a submission's fields ask for, and the version it is for."""


def is_many(request: Request) -> bool:
    """Whether a submission is of many jobs. A compressed body is inflated as far as its beginning."""
    if request.url.partition("?")[0] != _PATH:
        return False
    head = request.raw_body
    wbits = ENCODINGS.get(request.headers.get("Content-Encoding", "").lower())
    if wbits is not None:
        try:
            head = zlib.decompressobj(wbits).decompress(head[:_HEAD_BYTES], _HEAD_BYTES)
        except zlib.error:
            return False  # whoever reads it says so
    return _MANY.match(head) is not None


class Many:
    """Takes many jobs."""

    def __init__(self, jobs: ManyJobs, codec: BodyCodec) -> None:
        self._jobs = jobs
        self._codec = codec

    async def submit(self, request: Request, route: Route, key: ApiKey, choose: Choose) -> JsonResponse:
        """200 with what became of each, in order."""
        if preference(request.headers.get("Prefer", "")).wait_s is not None:
            raise InvalidRequest(
                "The jobs of a call with many are not waited for: leave Prefer: wait away, and ask for each by its id.",
                field="Prefer",
            )
        read = partial(self._asked, request, key, choose)
        became, is_replayed = await self._jobs.submit(key, request, route, read)
        refused = sum(isinstance(one, SignalboxError) for one in became)
        doc = {"jobs": [_shown(one) for one in became], "accepted": len(became) - refused, "refused": refused}
        return json_response(200, doc, {REPLAYED: "true"} if is_replayed else None)

    async def _asked(self, request: Request, key: ApiKey, choose: Choose) -> list[Prediction | SignalboxError]:
        encoding = request.headers.get("Content-Encoding", "").lower()
        choose_one = partial(choose, key, request.headers)
        read = await self._codec.read_many(key.account_id, request.raw_body, encoding, choose_one)
        return [one if isinstance(one, SignalboxError) else Prediction(one[1], one[2], one[0]) for one in read]


def _shown(one: Became) -> dict[str, Any]:
    if isinstance(one, SignalboxError):
        return {"error": problem(one)}
    record = one.record
    return {"id": record.id, "state": record.state.value, "urls": urls(record.id)}
