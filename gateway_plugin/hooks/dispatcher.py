"""Takes the gateway's hook calls: checks the caller, runs the hook, and turns errors into answers.

Whatever happens, the object that came in is the object that goes back, changed.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from http import HTTPStatus
from time import perf_counter
from typing import Final

import msgspec
from prometheus_client import Counter

from gateway_plugin.api.dialect import Dialects
from gateway_plugin.hooks import handover
from gateway_plugin.hooks.grpcrefusals import grpc_refusal, is_grpc
from gateway_plugin.jsonresponses import JsonResponse, StreamResponse
from gateway_plugin.proto.coprocess_pb2 import MiniRequestObject, Object
from gateway_plugin.request import Request
from signalbox.program import log, metrics
from signalbox.program.errors import Bug, SignalboxError, Unavailable, Unimplemented

AUTH: Final = "SignalboxAuth"
POST: Final = "SignalboxPost"
UPSTREAM_AUTH: Final = "SignalboxUpstreamAuth"
"""The auth hook of an API that goes on to the upstream."""
GRPC: Final = "grpc"
"""What outcomes of gRPC calls are counted as."""
_HOOKS: Final = frozenset({AUTH, POST, UPSTREAM_AUTH})
_MOST_SPECS: Final = 64
_LONGEST_SPEC: Final = 4096
"""Longest caller's spec that is remembered, in characters; a longer one is checked in each call."""
_NOT_TEXT: Final = (
    "The answer is {}, and the gateway's hook, which got this call, can only answer with text. Ask for JSON, or have "
    "the gateway send this path to the upstream (docs/tyk.md)."
)
_MOST_REPORTED: Final = 64
"""Times that a caller is logged as refused."""

ANSWERS = metrics.counter(
    "gateway_answers",
    "Outcomes of hook calls, and of requests to the listeners `edge`, `upstream` and `grpc`.",
    "hook",
    "status",
)
REFUSED = metrics.counter(
    "refused",
    "Requests answered with an error of ours, by its code and the bound exceeded or the protocol broken.",
    "reason",
)
_THEIR_REQUESTS: Final = metrics.counter(
    "tfservingcache_proxy_requests",
    "Requests that were answered, as TFServingCache counts them; protocol: rest (refusals by the auth hook too), grpc.",
    "protocol",
)
_THEIR_FAILURES: Final = metrics.counter(
    "tfservingcache_proxy_failures", "Requests that were answered with an error of ours (5xx).", "protocol"
)
ANSWER_SECONDS = metrics.histogram(
    "gateway_answer_seconds",
    "From a request whose key is good and whose body is there to its answer, waiting included.",
)

AuthHook = Callable[[Object], None]
PostHook = Callable[[Object], Awaitable[JsonResponse | StreamResponse]]


def count_refusal(reason: str) -> None:
    """Count a request that was refused, here or by a listener before it came here."""
    REFUSED.labels(reason).inc()


class Outcomes:
    """Counts the outcomes of hook calls; the gateway itself does not see direct replies in its metrics."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, int], tuple[Counter, ...]] = {}

    def count(self, hook: str, status: int) -> None:
        """Count one. status: of the answer; 0 or less = the request passed."""
        counters = self._counters.get((hook, status))
        if counters is None:
            counters = self._counters[hook, status] = tuple(_counters(hook, status))
        for counter in counters:
            counter.inc()


def _counters(hook: str, status: int) -> Iterator[Counter]:
    yield ANSWERS.labels(hook, str(status) if status > 0 else "passed")
    if status <= 0 and hook in {AUTH, UPSTREAM_AUTH}:
        return  # it is answered elsewhere
    protocol = GRPC if hook == GRPC else "rest"
    yield _THEIR_REQUESTS.labels(protocol)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        yield _THEIR_FAILURES.labels(protocol)


def counted(error: Exception, where: str) -> SignalboxError:
    """The error of ours that an exception stands for, counted; any other is a bug. Bugs are logged, with ``where``."""
    if not isinstance(error, SignalboxError) or isinstance(error, Bug):
        log.exception("gateway.request_failed", error=error, where=where[:60])
    if not isinstance(error, SignalboxError):
        error = Bug()
    bound = error.facts.get("bound", "")
    count_refusal(f"{error.code}:{bound}" if bound else error.code)
    return error


class _ConfigData(msgspec.Struct):
    secret: str = ""


class Dispatcher:
    """Routes one hook call and always returns the object it got.

    auth: fills in the session, or raises. post: the whole answer. dialects: what refusals are written in. secret: what
    the API definition's ``config_data.secret`` must be; empty = any caller of the socket is the gateway. apis, orgs:
    the API definitions and organisations whose calls are taken; empty = any.
    """

    def __init__(
        self,
        auth: AuthHook,
        post: PostHook,
        dialects: Dialects,
        *,
        secret: str = "",
        apis: frozenset[str] = frozenset(),
        orgs: frozenset[str] = frozenset(),
    ) -> None:
        self._dialects = dialects
        self._apis = apis
        self._orgs = orgs
        self._auth = auth
        self._post = post
        self._secret = secret.encode()
        self._reported = 0
        self._judge_once = lru_cache(maxsize=_MOST_SPECS)(self._judge)
        self._outcomes = Outcomes()

    async def dispatch(self, obj: Object) -> Object:
        """One hook call. Raises nothing but cancellation: errors become answers."""
        return obj if self.answered_at_once(obj, is_ours=self.trusts(obj)) else await self.answer(obj)

    async def answer(self, obj: Object) -> Object:
        """The second half of :meth:`dispatch`: a post hook, which may wait for its job."""
        started = perf_counter()
        try:
            given = await self._post(obj)
            if isinstance(given, StreamResponse):
                await given.parts.aclose()
                raise Unimplemented(_NOT_TEXT.format("a stream"))
            _apply(obj, given)
            ANSWER_SECONDS.observe(perf_counter() - started)
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            _apply(obj, self._refusal(error, obj))
        self._outcomes.count(POST, obj.request.return_overrides.response_code)
        return obj

    def answered_at_once(self, obj: Object, *, is_ours: bool) -> bool:
        """Answer a call that needs no waiting. False: it is untouched, and for :meth:`answer`.

        is_ours: what :meth:`trusts` says of it.
        """
        hook, request = obj.hook_name, obj.request
        given = None
        try:
            if not is_ours:
                raise Unavailable("The gateway is not set up for this service; nothing was accepted.")
            if hook == POST:
                return False
            if hook == AUTH or (hook == UPSTREAM_AUTH and request.method == "OPTIONS"):
                given = self._dialects.of(request.url).keyless(
                    Request(request.method, request.url, request.headers, b"")
                )
            elif hook != UPSTREAM_AUTH:
                raise Bug(f"The API definition names a hook this plugin does not have: {hook!r}.")
            if given is None:
                self._auth(obj)
                if hook == UPSTREAM_AUTH:
                    _hand_over(request)
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            given = self._refusal(error, obj)
        if given is not None:
            _apply(obj, given)
        self._outcomes.count(hook if hook in _HOOKS else "unknown", request.return_overrides.response_code)
        return True

    def _refusal(self, error: Exception, obj: Object) -> JsonResponse:
        """The answer that an error stands for, see :func:`counted`."""
        found = counted(error, obj.hook_name)
        if obj.hook_name == UPSTREAM_AUTH and is_grpc(obj.request.headers):
            return grpc_refusal(found)
        return self._dialects.of(obj.request.url).refusal(found, obj.request.url)

    def trusts(self, obj: Object) -> bool:
        """Whether a call that has not been answered is of a gateway and an API of ours."""
        spec = obj.spec
        config, api, org = spec.get("config_data", ""), spec.get("APIID", ""), spec.get("OrgID", "")
        is_long = len(config) + len(api) + len(org) > _LONGEST_SPEC
        return self._judge(config, api, org) if is_long else self._judge_once(config, api, org)

    def _judge(self, config: str, api: str, org: str) -> bool:
        is_ours = (not self._apis or api in self._apis) and (not self._orgs or org in self._orgs)
        is_ours = self._holds_secret(config) and is_ours
        if not is_ours and self._reported < _MOST_REPORTED:  # unknown callers must not fill the log
            self._reported += 1
            log.error("gateway.caller_refused", api_id=api[:60], org_id=org[:60])
        return is_ours

    def _holds_secret(self, config: str) -> bool:
        if not self._secret:
            return True
        try:
            given = msgspec.json.decode(config or "{}", type=_ConfigData).secret
        except msgspec.MsgspecError:
            return False
        return hmac.compare_digest(given.encode(), self._secret)


def _hand_over(request: MiniRequestObject) -> None:
    """Change a request that goes on to the upstream."""
    changed = handover.changes(request.headers)
    request.set_headers.update(changed.put)
    request.delete_headers.extend(changed.removed)


def _apply(obj: Object, given: JsonResponse) -> None:
    """Turn ``given`` into a direct reply, which is text. Raises :class:`Unimplemented` for one that is not."""
    try:
        body = given.body.decode()
    except UnicodeDecodeError as error:
        raise Unimplemented(_NOT_TEXT.format("bytes")) from error
    overrides = obj.request.return_overrides
    overrides.response_code = given.status
    overrides.override_error = given.status >= 400
    overrides.response_error = ""
    overrides.response_body = body
    headers = overrides.headers
    for name, value in given.headers.items():
        headers[name] = value
