"""``/api/predict/<name>`` and ``/v1/queues/<name>`` over HTTP: a queue's verbs, and predictions at the same address."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

from gateway_plugin.admission.acceptance import trace_of
from gateway_plugin.admission.pool import Pool
from gateway_plugin.api.queues import parameters
from gateway_plugin.api.queues.frames import PROTOBUF, frames
from gateway_plugin.api.queues.parameters import REQUEST, Call, Verb
from gateway_plugin.api.queues.paths import Address, address_of, is_of_queues
from gateway_plugin.api.queues.predicting import Predicting
from gateway_plugin.api.queues.watching import WatchSocket
from gateway_plugin.jsonresponses import JSON, JsonResponse, json_response, problem_response
from gateway_plugin.queues.items import REQUEST_TAG, Item
from gateway_plugin.queues.reading import LONGEST_S, Get
from gateway_plugin.queues.taking import MOST_ITEMS
from gateway_plugin.queues.watching.openwatch import MOST_WINDOW, Watch
from gateway_plugin.request import Request
from gateway_plugin.service.queues import Queues
from signalbox.program.errors import InvalidRequest, SignalboxError
from signalbox.wire.keydocs import ApiKey

TEXT: Final = "text/plain; charset=utf-8"
OCTETS: Final = "application/octet-stream"
INDEX: Final = "X-Signalbox-Index"
TAGS: Final = "X-Signalbox-Tags"
"""Of a raw item: its index, and its tags as a JSON object in ASCII."""
_OF_REAR: Final = frozenset({Verb.GET, Verb.DELETE})

_Act = Callable[[Request, ApiKey, Address, Call], Awaitable[JsonResponse]]


class QueuesRest:
    """The dialect. is_model: whether a model has a name. limit_bytes: of a body. most_watches: that are open."""

    def __init__(
        self,
        queues: Queues,
        predicting: Predicting,
        is_model: Callable[[str], bool],
        limit_bytes: int,
        most_watches: int,
    ) -> None:
        self._queues = queues
        self._predicting = predicting
        self._is_model = is_model
        self.limit_bytes = limit_bytes
        self.places = Pool(
            most_watches,
            bound="watches",
            of_all="As many watches are open as may be",
            of_account="As many watches of your account are open as may be now",
            mend="Close some of them, or give one a larger window.",
        )
        self._acts: Final[Mapping[Verb, _Act]] = {
            Verb.PUT: self._put,
            Verb.END: self._end,
            Verb.GET: self._get,
            Verb.WATCH: self._watch_over_http,
            Verb.SEARCH: self._search,
            Verb.COUNT: self._count,
            Verb.ATTRIBUTES: self._attributes,
            Verb.COMMIT: self._commit,
            Verb.DELETE: self._delete,
            Verb.TRUNCATE: self._truncate,
            Verb.FORGET: self._forget,
        }

    def takes(self, head: str) -> bool:
        """Whether a path is a queue's."""
        return is_of_queues(head)

    def keyless(self, _request: Request) -> JsonResponse | None:
        """Nothing here is without a key."""
        return None

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        """An RFC 9457 problem; SDKs look at the status alone."""
        return problem_response(error)

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        """The answer. Raises errors of ours."""
        address = address_of(request.url.partition("?")[0])
        pairs = parameters.query_of(request)
        if (
            request.method == "POST"
            and not address.is_queue
            and not parameters.says_queue(request.headers, pairs)
            and self._is_model(address.name)
        ):
            return await self._predicting.predict(request, key, address.name)
        call = parameters.call_of(request, pairs)
        if call.verb not in _OF_REAR and parameters.is_rear(request.headers):
            raise InvalidRequest(f"The rear queue takes get and delete, and no {call.verb}.", field=parameters.REAR)
        return await self._acts[call.verb](request, key, address, call)

    async def open(self, request: Request, key: ApiKey) -> WatchSocket:
        """The watch that a websocket is to be. Raises errors of ours."""
        address = address_of(request.url.partition("?")[0])
        call = parameters.call_of(request, parameters.query_of(request))
        if call.verb is not Verb.WATCH:
            raise InvalidRequest("Only a watch is a websocket: add _watch_=true.", field="_watch_")
        if parameters.is_rear(request.headers):
            raise InvalidRequest("The rear queue takes get and delete, and no watch.", field=parameters.REAR)
        is_auto_commit = call.flag("_auto_commit_")
        window = call.index("_window_", default=1, least=0 if is_auto_commit else 1)
        asked = Watch(
            index=call.index(default=0, least=-parameters.LARGEST),
            window=min(max(window, 1), MOST_WINDOW),
            is_index_only=call.flag("_index_only_"),
            is_auto_commit=is_auto_commit,
            tags=call.tags,
        )
        consumer = parameters.consumer(request.headers, uuid.uuid4().hex)
        opened = await self._queues.watch(key, address.name, address.side, consumer, asked)
        return WatchSocket(self._queues, address, opened)

    # ------------------------------------------------------------------ what changes a queue

    async def _put(self, request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        request_id = str(uuid.uuid4())
        parameters.require_header(REQUEST_TAG, call.tags.get(REQUEST_TAG, ""))
        is_high = parameters.is_high(call, request.headers) or False
        index = await self._queues.put(
            *(key, at.name, at.side, request.raw_body, call.tags),
            is_high=is_high,
            request_id=request_id,
            trace=trace_of(request.headers),
        )
        return _text(str(index), {REQUEST: call.tags.get(REQUEST_TAG) or request_id})

    async def _end(self, _request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        await self._queues.end(key, at.name, at.side, is_forced=call.flag("_force_"))
        return _done()

    async def _commit(self, request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        indexes = call.indexes()
        if not call.flag("_negative_"):
            await self._queues.commit(key, at.name, at.side, parameters.consumer(request.headers, "-").group, indexes)
            return _done()
        said = {**parameters.form_of(request), **call.own}
        code, reason = parameters.code_of(said.get("_code_", "")), said.get("_reason_", "")
        if len(reason) > parameters.LONGEST_REASON:
            raise InvalidRequest(f"_reason_ has at most {parameters.LONGEST_REASON} characters.", field="_reason_")
        if parameters.USER not in request.headers:
            raise InvalidRequest(f"Say who watches, in the header {parameters.USER}.", field=parameters.USER)
        consumer = parameters.consumer(request.headers)
        await self._queues.negative(key, at.name, at.side, consumer, indexes, code, reason)
        return _done()

    async def _delete(self, request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        is_rear = parameters.is_rear(request.headers)
        await self._queues.delete(key, at.name, at.side, call.indexes(), is_rear=is_rear)
        return _done()

    async def _truncate(self, _request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        await self._queues.truncate(key, at.name, at.side, call.index())
        return _done()

    async def _forget(self, request: Request, key: ApiKey, at: Address, _call: Call) -> JsonResponse:
        await self._queues.forget(key, at.name, at.side, parameters.consumer(request.headers, "-").group)
        return _done()

    # ------------------------------------------------------------------ what reads one

    async def _get(self, request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        is_raw = call.flag("_raw_")
        length = call.index("_length_", default=1, least=1)
        if is_raw and length > 1:
            raise InvalidRequest("_raw_=true gives one item: leave _length_ out, or _raw_.", field="_length_")
        found = await self._queues.get(
            key,
            at.name,
            at.side,
            Get(
                index=call.index(default=0, least=-1),
                length=min(length, MOST_ITEMS),
                timeout_s=min(call.timeout_s(), LONGEST_S),
                is_deleting=call.flag("_auto_delete_", default=True),
                tags=call.tags,
                is_rear=parameters.is_rear(request.headers),
            ),
        )
        if not found:
            return JsonResponse(204, b"", {})
        return _raw(found[0]) if is_raw else JsonResponse(200, frames(found), {"Content-Type": PROTOBUF})

    async def _watch_over_http(self, _request: Request, _key: ApiKey, _at: Address, _call: Call) -> JsonResponse:
        raise InvalidRequest(
            "A watch is a websocket: ask for it with Connection: Upgrade and Upgrade: websocket, in a head of less "
            "than 8 kB in ASCII.",
            field="_watch_",
        )

    async def _search(self, request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        group = parameters.consumer(request.headers, "-").group
        found = await self._queues.search(key, at.name, at.side, group, call.index(least=1))
        return json_response(200, {"IsPending": found.is_pending, "WaitCount": found.wait_count})

    async def _count(self, request: Request, key: ApiKey, at: Address, call: Call) -> JsonResponse:
        is_high = parameters.is_high(call, request.headers)
        found = await self._queues.count(key, at.name, at.side, call.tags, is_high=is_high)
        return JsonResponse(200, str(found).encode(), {"Content-Type": JSON})

    async def _attributes(self, _request: Request, key: ApiKey, at: Address, _call: Call) -> JsonResponse:
        found: Mapping[str, Any] = await self._queues.attributes(key, at.name, at.side)
        return json_response(200, dict(found))


def _text(text: str, headers: Mapping[str, str] | None = None) -> JsonResponse:
    return JsonResponse(200, text.encode(), {"Content-Type": TEXT, **(headers or {})})


def _done() -> JsonResponse:
    return _text("OK")


def _raw(item: Item) -> JsonResponse:
    """An item's data as it was put, and in headers what a ``DataFrame`` has beside it."""
    headers = {
        "Content-Type": OCTETS,
        "X-Content-Type-Options": "nosniff",
        INDEX: str(item.index),
        TAGS: _in_ascii(item.tags),
    }
    return JsonResponse(200, item.data, headers)


def _in_ascii(tags: Mapping[str, str]) -> str:
    """Tags as JSON that a header takes."""
    text = orjson.dumps(dict(tags)).decode()
    return "".join(one if one.isascii() else _escaped(one) for one in text)


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
