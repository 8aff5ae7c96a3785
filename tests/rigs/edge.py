"""The edge: before the plugin of a rig, or with a dialect that a test steers and keys that are all good."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx

from gateway_plugin.admission.eventtokens import EventTokens
from gateway_plugin.admission.keyring import Keyring
from gateway_plugin.admission.limits import KeyLimits
from gateway_plugin.admission.pool import Pool, bodies_pool
from gateway_plugin.admission.usage import KeyCounts
from gateway_plugin.api.dialect import Dialects
from gateway_plugin.api.hello import Hello
from gateway_plugin.jsonresponses import JsonResponse, StreamResponse, problem_response
from gateway_plugin.request import Request
from gateway_plugin.upstream.callers import Callers
from gateway_plugin.upstream.http import HttpUpstream
from gateway_plugin.upstream.server import HttpServer
from signalbox.program import metrics
from signalbox.program.errors import SignalboxError, Unauthorized
from signalbox.wire.keydocs import ApiKey
from tests.rigs.gateway import ALL_SCOPES, Rig

LIMIT_S: Final = 60
_MIB: Final = 1024 * 1024


@asynccontextmanager
async def edge(front: Rig) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the edge in a rig's plugin."""
    server = await HttpServer.start(front.gateway.http_upstream(is_front=True), listen="127.0.0.1:0")
    try:
        async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=LIMIT_S) as client:
            yield client
    finally:
        await server.close(1)


class Everybody(Keyring):
    """Each text is the key of that name, but ``nobody``; ``reader`` may submit nothing."""

    def __init__(self) -> None:
        """Without a table."""
        self.counts = KeyCounts()

    def check(self, text: str, address: str = "") -> ApiKey:
        if text == "nobody":
            raise Unauthorized("Who?")
        return ApiKey(
            id=text or "anybody",
            account_id=text or "anybody",
            hmac="",
            scopes=ALL_SCOPES[1:] if text == "reader" else ALL_SCOPES,
        )


class Held:
    """A dialect that answers what it was sent, if that is large only once ``go`` is set. asked, sizes: of requests."""

    limit_bytes = 64 * _MIB

    def __init__(self, held_bytes: int = 0) -> None:
        self._held_bytes = held_bytes
        self.go = asyncio.Event()
        self.asked = asyncio.Semaphore(0)
        self.sizes: asyncio.Queue[int] = asyncio.Queue()
        self.left = asyncio.Event()

    def takes(self, _head: str) -> bool:
        return True

    def keyless(self, _request: Request) -> None:
        return None

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse | StreamResponse:
        size = len(request.raw_body)
        self.asked.release()
        self.sizes.put_nowait(size)
        if size >= self._held_bytes:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.left.set()
                raise
        shown = f"{request.url} {size} {','.join(sorted(request.headers))}"
        return JsonResponse(200, shown.encode(), {"Content-Type": "text/plain"})

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        return problem_response(error)


def app(dialect: Held, bodies: Pool | None = None, answer_s: float = LIMIT_S) -> HttpUpstream:
    """The edge's application, of one dialect."""
    everybody = Everybody()
    callers = Callers(everybody, EventTokens(("pepper",), everybody), charge=KeyLimits().charge)
    return HttpUpstream(Dialects(Hello(), dialect), callers, bodies or bodies_pool(512 * _MIB), answer_s=answer_s)


def counted(reason: str) -> float:
    """Refusals with a reason so far."""
    return metrics.REGISTRY.get_sample_value("signalbox_refused_total", {"reason": reason}) or 0
