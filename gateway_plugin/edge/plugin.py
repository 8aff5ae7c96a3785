"""The plugin as the edge calls it: by Tyk's messages, wherever it is, or its hooks in this process without them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from gateway_plugin.edge.definition import CheckedApi, Definition
from gateway_plugin.edge.limits import Quota
from gateway_plugin.edge.requests import AddedHeaders, ObjectMaker, body_as_tyk_has_it
from gateway_plugin.edge.target import RequestTarget
from gateway_plugin.hooks import handover
from gateway_plugin.hooks.direct import DirectHooks
from gateway_plugin.hooks.dispatcher import AUTH, POST, UPSTREAM_AUTH
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
    """A request that its auth hook lets in. sent, replied: the messages, where there were any.

    put, removed: headers that change before the request goes on to an upstream, by Go's canonical names.
    """

    session: Session
    put: Mapping[str, str] = {}
    removed: Sequence[str] = ()
    sent: Object | None = None
    replied: Object | None = None


class Plugin(Protocol):
    """What the edge needs of the plugin."""

    async def auth(
        self, api: CheckedApi, method: str, target: RequestTarget, headers: dict[str, str]
    ) -> Passed | Reply | None:
        """Call an API's auth hook; None = it is away."""

    async def post(self, passed: Passed, request: Request, peer: str, quota: Quota | None) -> Reply | None:
        """Call the Post hook. peer: address of the connection. Status 0: the hook has no answer. None: it failed."""


class LocalPlugin:
    """The hooks of this process."""

    def __init__(self, front: Definition, hooks: DirectHooks) -> None:
        for api in front.checked:
            wanted = (AUTH, POST) if api.post_hook else (UPSTREAM_AUTH, "")
            if (api.auth_hook, api.post_hook) != wanted:
                raise Misconfigured(f"API {api.api_id}: the plugin has the hooks {' '.join(wanted)}, not those of it")
        self._hooks = hooks
        self._added = AddedHeaders(front.hooked, front.xff_depth)
        self._is_ours = {api.api_id: hooks.knows(api.config_data, api.api_id, api.org_id) for api in front.checked}

    async def auth(
        self, api: CheckedApi, method: str, target: RequestTarget, headers: dict[str, str]
    ) -> Passed | Reply | None:
        """See :class:`Plugin`."""
        found = self._hooks.auth(method, target.url, headers, is_ours=self._is_ours[api.api_id])
        if not isinstance(found, Session):
            return found
        return Passed(found) if api.post_hook else Passed(found, *handover.changes(headers))

    async def post(self, passed: Passed, request: Request, peer: str, quota: Quota | None) -> Reply | None:
        """See :class:`Plugin`."""
        request.raw_body = body_as_tyk_has_it(request.headers, request.raw_body)
        self._added.add(request.headers, peer)
        return await self._hooks.post(request, passed.session.key_id)


class MessagePlugin:
    """A plugin that gets the messages that Tyk would send."""

    def __init__(self, front: Definition, call: Call) -> None:
        self._call = call
        self._makers = {api.api_id: ObjectMaker(api, front.xff_depth) for api in front.checked}
        self._hooked = self._makers[front.hooked.api_id]

    async def auth(
        self, api: CheckedApi, method: str, target: RequestTarget, headers: dict[str, str]
    ) -> Passed | Reply | None:
        """See :class:`Plugin`."""
        sent = self._makers[api.api_id].auth(method, target, headers)
        replied = await self._dispatch(sent)
        if replied is None:
            return None
        reply = _reply(replied)
        if reply.status > 0:
            return reply
        if replied.metadata:
            replied.session.metadata.MergeFrom(replied.metadata)
        session, changed = Session.of(replied.session), replied.request
        put = {canonical(name.encode()): value for name, value in changed.set_headers.items()}
        removed = [canonical(name.encode()) for name in changed.delete_headers]
        return Passed(session, put, removed, sent, replied)

    async def post(self, passed: Passed, request: Request, peer: str, quota: Quota | None) -> Reply | None:
        """See :class:`Plugin`."""
        assert passed.sent is not None
        assert passed.replied is not None
        if quota is not None:
            passed.replied.session.quota_remaining = quota.remaining
            passed.replied.session.quota_renews = quota.renews_at
        try:
            sent = self._hooked.post(passed.sent, passed.replied, request.url, peer, request.raw_body)
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
