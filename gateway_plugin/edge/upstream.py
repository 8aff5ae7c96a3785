"""What the edge hands on to the upstream, which is an application in the same process."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from gateway_plugin.edge.definition import NAMED_SEGMENT, Definition, UpstreamApi
from gateway_plugin.edge.plugin import Passed
from gateway_plugin.edge.requests import AddedHeaders
from gateway_plugin.edge.responses import Headers
from gateway_plugin.service.request import canonical
from signalbox.program.errors import Unimplemented

Scope = dict[str, Any]
Message = dict[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]

_FORWARDED: Final = "X-Forwarded-For"
_NOT_GRPC: Final = "This front speaks HTTP/1.1 only, and gRPC needs HTTP/2: ask an operator for the address of gRPC."
_APART: Final = (
    "This front runs in a process of its own and does not serve the Open Inference Protocol: ask an operator for the "
    "address of one that does."
)


def _pattern(listen_path: str) -> bytes:
    """What paths of an API begin with. Tyk looks at the decoded path, in which ``%2F`` ends a segment."""
    parts = NAMED_SEGMENT.split(listen_path)
    return rb"(?:(?!%2[Ff])[^/])+".join(re.escape(part.encode()) for part in parts)


class Handed(NamedTuple):
    """A request for the upstream. scope: as the upstream sees it. shown: headers that the edge adds to the answer."""

    scope: Scope
    shown: Headers


class UpstreamPaths:
    """The APIs of the upstream. app: an ASGI application; None = it is not in this process."""

    def __init__(self, front: Definition, app: Application | None) -> None:
        self._app = app
        self._apis = [(re.compile(_pattern(api.listen_path)), api) for api in front.upstreams]
        self._heads = tuple({api.listen_path.partition("{")[0].encode() for api in front.upstreams})
        self._added = {
            api.listen_path: AddedHeaders(api.checked, front.xff_depth) for api in front.upstreams if api.checked
        }

    def of(self, path: bytes) -> UpstreamApi | None:
        """The API that a path belongs to."""
        if not path.startswith(self._heads):
            return None
        return next((api for pattern, api in self._apis if pattern.match(path)), None)

    def require_served(self, api: UpstreamApi) -> None:
        """Raise :class:`Unimplemented` with the reason where this front cannot serve an API."""
        if api.is_grpc:
            raise Unimplemented(_NOT_GRPC, bound="front")
        if self._app is None:
            raise Unimplemented(_APART, bound="front")

    def handed(self, api: UpstreamApi, passed: Passed | None, scope: Scope, headers: Mapping[str, str]) -> Scope:
        """The request as the upstream sees it, changed as Tyk changes it. passed: None = the API needs no key."""
        peer = scope["client"][0] if scope.get("client") else ""
        put = {_FORWARDED: ", ".join(filter(None, (headers.get(_FORWARDED), peer)))}
        gone = set(put)
        if passed is not None:
            put |= {**passed.put, **self._added[api.listen_path].of(headers, peer)}
            gone.update(passed.removed, put)
        kept = [pair for pair in scope["headers"] if canonical(pair[0]) not in gone]
        return {**scope, "headers": kept + [(name.lower().encode(), value.encode()) for name, value in put.items()]}

    async def answer(self, handed: Handed, receive: Any, send: Any) -> None:
        """Let the upstream answer, with the edge's own headers added."""
        assert self._app is not None

        async def shown(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *handed.shown]}
            await send(message)

        await self._app(handed.scope, receive, shown if handed.shown else send)
