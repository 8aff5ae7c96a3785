"""Only our own pages may open the websocket: browsers send cookies whatever page opens it, and CORS does not apply."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from signalbox.front.front import Receive, Scope, Send
from signalbox.program import log, metrics

_REFUSED: Final = metrics.counter(
    "console_origin_refused", "Websockets refused because a foreign page, or none, asked for them."
)
_POLICY_VIOLATION: Final = 1008


class SameOrigin:
    """Refuses a handshake whose ``Origin`` is missing, another scheme, host or port, or not an address at all.

    A host behind a proxy that rewrites ``Host`` is named in ``trusted_origins``, as for forms. What is refused
    is logged and counted: the browser does not show the reason.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the handshake on, or close it."""
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        origin, host = headers.get(b"origin", ""), headers.get(b"host", "")
        if is_own(origin, host, _scheme(headers)):
            await self._inner(scope, receive, send)
            return
        _REFUSED.inc()
        log.warning("live.origin_refused", origin=origin[:200], host=host[:200])
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})


def _scheme(headers: Mapping[bytes, str]) -> str:
    """How browsers reach the console, as for forms: what terminates TLS in front says it where it is trusted."""
    said = headers.get(b"x-forwarded-proto", "") if settings.CONSOLE.trust_proxy else ""
    return "https" if settings.CONSOLE.is_https or said in {"https", "wss"} else "http"


def is_own(origin: str, host: str, scheme: str) -> bool:
    """Whether a page of ``origin`` is one of ours, given the ``Host`` and the scheme it was asked with."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        parts = urlsplit(origin)
        is_ours = parts.scheme == scheme and "@" not in parts.netloc
        named, _ = split_domain_port(parts.netloc.lower())
    except ValueError:
        return False
    if not is_ours or not named or not validate_host(named, settings.ALLOWED_HOSTS):
        return False
    return _full(parts.netloc, parts.scheme) == _full(host, parts.scheme)


def _full(netloc: str, scheme: str) -> str:
    """With its port, where a browser leaves the usual one out."""
    domain, port = split_domain_port(netloc.lower())
    return f"{domain}:{port or {'http': '80', 'https': '443'}[scheme]}"
