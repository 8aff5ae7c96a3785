"""One POST to a receiver: the URL judged, its address pinned, everything bounded.

The connection goes to the address that was judged, with the name for TLS and ``Host``; a lookup by the HTTP library
could be answered differently. No redirect is followed, no proxy is asked, and no connection is kept: a kept one belongs
to an address, and another name may have been proven on it.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

import httpx

from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.program import egress
from signalbox.program.egress import Destination, Lookup
from signalbox.program.errors import Misconfigured, SignalboxError

ANSWER_BYTES: Final = 64 * 1024
"""So much of an answer is read."""
_SHOWN: Final = 1024
_AGENT: Final = "signalbox-webhooks/1"
_USUAL: Final = frozenset({(443, True), (80, False)})


class Answer(NamedTuple):
    """What came of an attempt. status: 0 = no answer, and error says why. text: the answer's first characters."""

    status: int
    text: str = ""
    error: str = ""
    took_ms: float = 0.0


class Sender:
    """Sends to receivers. lookup: gives the addresses of their names.

    Raises :class:`Misconfigured` if the file of authorities cannot be read.
    """

    def __init__(self, settings: OutboundSettings, lookup: Lookup) -> None:
        self._settings = settings
        self._lookup = lookup
        self._allowed = egress.networks(settings.webhook_networks)
        self._timeout = httpx.Timeout(settings.hook_total_s, connect=settings.hook_connect_s)
        self._tls = ssl.create_default_context()
        if settings.hook_ca_file:
            try:
                self._tls.load_verify_locations(settings.hook_ca_file)
            except OSError as error:
                raise Misconfigured(f"{settings.hook_ca_file} cannot be read: {error}.") from error

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """POST, and say what came of it; raises nothing but cancellation. The status decides, however slow the rest."""
        began = time.monotonic()
        received = _Received()
        error = ""
        try:
            async with asyncio.timeout(self._settings.hook_total_s):
                await self._post(url, headers, body, received)
        except TimeoutError:
            error = f"No answer within {self._settings.hook_total_s:g} s."
        except SignalboxError as refused:
            error = refused.public_message
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as failed:
            error = _words(failed)
        took_ms = (time.monotonic() - began) * 1e3
        if not received.status:
            return Answer(0, "", error, took_ms)
        if 300 <= received.status < 400:
            error = "Redirects are not followed; give the webhook the URL it leads to."
        text = bytes(received.body[: 4 * _SHOWN]).decode(errors="replace")[:_SHOWN]
        return Answer(received.status, text, error, took_ms)

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes, received: "_Received") -> None:
        target = await egress.resolve(
            url, allow_plain=self._settings.webhook_plain, allowed=self._allowed, lookup=self._lookup
        )
        request = httpx.Request(
            "POST",
            f"{'https' if target.is_tls else 'http'}://{_bracketed(target.address)}:{target.port}/",
            headers={
                "host": _host(target),
                "user-agent": _AGENT,
                "content-type": "application/json",
                "accept-encoding": "identity",
                **headers,
            },
            content=body,
            extensions={
                "sni_hostname": target.host,
                "target": target.path.encode(),
                "timeout": self._timeout.as_dict(),
            },
        )
        async with httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            try:
                received.status = response.status_code
                async for part in response.aiter_raw():
                    received.body += part[: ANSWER_BYTES - len(received.body)]
                    if len(received.body) >= ANSWER_BYTES:
                        break
            finally:
                await response.aclose()


class _Received:
    """What has come so far, for an attempt whose time ends while the answer still comes."""

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()


def _host(target: Destination) -> str:
    name = _bracketed(target.host)
    return name if (target.port, target.is_tls) in _USUAL else f"{name}:{target.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _words(error: Exception) -> str:
    """Why there was no answer, for people."""
    if isinstance(error, httpx.ConnectTimeout):
        return "The receiver takes no connection in time."
    if isinstance(error, httpx.TimeoutException):
        return "No answer in time."
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__
