"""The plugin as the edge calls it: by Tyk's messages, wherever it is, or its hooks in this process without them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from gateway_plugin.edge.definition import Definition
from gateway_plugin.edge.limits import Quota
from gateway_plugin.edge.requests import AddedHeaders, ObjectMaker, body_as_tyk_has_it
from gateway_plugin.edge.target import RequestTarget, parameters
from gateway_plugin.hooks.direct import DirectHooks
from gateway_plugin.hooks.dispatcher import AUTH, POST
from gateway_plugin.hooks.session import Session
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.service.jsonresponses import JsonResponse
from gateway_plugin.service.request import Request, canonical
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.program.log import get_logger

Call = Callable[[Object], Awaitable[Object]]
"""Calls one hook; any exception means that the plugin is away."""

_log = get_logger()


class Page(NamedTuple):
    """An answer of a hook that is an error page of the gateway's around a text. headers: by canonical names."""

    status: int
    headers: Mapping[str, str]
    text: str


Reply = JsonResponse | Page
"""A whole answer of a hook."""


class Passed(msgspec.Struct, frozen=True):
    """A request that its auth hook lets in. sent, replied: the messages, where there were any."""

    session: Session
    sent: Object | None = None
    replied: Object | None = None


class Plugin(Protocol):
    """What the edge needs of the plugin."""

    async def auth(self, method: str, target: RequestTarget, headers: dict[str, str]) -> Passed | Reply | None:
        """Call the auth hook; None = it is away. Raises ValueError on text that its message cannot hold."""

    async def post(self, passed: Passed, request: Request, peer: str, quota: Quota | None) -> Reply | None:
        """Call the Post hook. peer: address of the connection. Status 0: the hook has no answer. None: it failed."""


class LocalPlugin:
    """The hooks of this process."""

    def __init__(self, front: Definition, hooks: DirectHooks) -> None:
        api = front.hooked
        if (api.auth_hook, api.post_hook) != (AUTH, POST):
            raise Misconfigured(f"API {api.api_id}: the plugin has the hooks {AUTH} and {POST}, not those of it")
        self._hooks = hooks
        self._added = AddedHeaders(api, front.xff_depth)
        self._is_ours = hooks.knows(api.config_data, api.api_id, api.org_id)

    async def auth(self, method: str, target: RequestTarget, headers: dict[str, str]) -> Passed | Reply | None:
        """See :class:`Plugin`."""
        if "?" in target.url:
            parameters(target.url.partition("?")[2])  # raises for what a message cannot hold
        found = self._hooks.auth(method, target.url, headers, is_ours=self._is_ours)
        return Passed(found) if isinstance(found, Session) else found

    async def post(self, passed: Passed, request: Request, peer: str, quota: Quota | None) -> Reply | None:
        """See :class:`Plugin`."""
        request.raw_body = body_as_tyk_has_it(request.headers, request.raw_body)
        self._added.add(request.headers, peer)
        return await self._hooks.post(request, passed.session.key_id)


class MessagePlugin:
    """A plugin that gets the messages that Tyk would send."""

    def __init__(self, front: Definition, call: Call) -> None:
        self._call = call
        self._objects = ObjectMaker(front.hooked, front.xff_depth)

    async def auth(self, method: str, target: RequestTarget, headers: dict[str, str]) -> Passed | Reply | None:
        """See :class:`Plugin`."""
        sent = self._objects.auth(method, target, headers)
        replied = await self._dispatch(sent)
        if replied is None:
            return None
        reply = _reply(replied)
        if reply.status > 0:
            return reply
        if replied.metadata:
            replied.session.metadata.MergeFrom(replied.metadata)
        return Passed(Session.of(replied.session), sent, replied)

    async def post(self, passed: Passed, request: Request, peer: str, quota: Quota | None) -> Reply | None:
        """See :class:`Plugin`."""
        assert passed.sent is not None
        assert passed.replied is not None
        if quota is not None:
            passed.replied.session.quota_remaining = quota.remaining
            passed.replied.session.quota_renews = quota.renews_at
        try:
            sent = self._objects.post(passed.sent, passed.replied, request.url, peer, request.raw_body)
        except ValueError as error:
            _log.warning("edge.reply_refused", error=str(error))
            return None
        final = await self._dispatch(sent)
        return None if final is None else _reply(final)

    async def _dispatch(self, sent: Object) -> Object | None:
        """The plugin's reply; None when it failed or returned another object than it got."""
        try:
            replied = await self._call(sent)
        except SignalboxError as error:
            _log.warning("edge.plugin_failed", hook=sent.hook_name, error=error.code)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, to the client the plugin is away
            _log.error("edge.plugin_failed", hook=sent.hook_name, error=repr(error))
            return None
        return replied if replied.HasField("request") else None


def _reply(obj: Object) -> Reply:
    """The direct reply in an object; status 0 or less = there is none."""
    given = obj.request.return_overrides
    status = given.response_code
    if status <= 0:
        return JsonResponse(0, b"", {})
    text = given.response_error or given.response_body
    headers = {canonical(name.encode()): value for name, value in given.headers.items()}
    if status >= 400 and not given.override_error:
        return Page(status, headers, text)
    return JsonResponse(status, text.encode(), headers)
