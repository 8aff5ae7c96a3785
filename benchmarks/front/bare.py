"""Upper bound of throughput behind a Tyk: a plugin that only answers, on uvloop and a unix socket.

By the transport that ``SIGNALBOX_GATEWAY_TRANSPORT`` names: a unary method of grpc.aio, or our own HTTP/2.
``python -m benchmarks.front.bare SOCKET`` is that plugin, with an HTTP upstream that only answers where the real one
would have its own; :func:`measure` drives it.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import uvicorn
import uvloop

from benchmarks.front.path import BODY, IN_FLIGHT, PATH
from benchmarks.rig.load import prepare, run
from gateway_plugin.api.dialect import Dialects
from gateway_plugin.api.hello import Hello
from gateway_plugin.hooks.dispatcher import POST, Dispatcher
from gateway_plugin.hooks.native.server import NativeServer
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.settings import GatewaySettings
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.ops.up.tyk import Programs, Tyk

ANSWER: Final = json.dumps({"predictions": [2.5]})
HEADERS: Final = {"Authorization": "bench"}
TOKEN: Final = "eyJvcmciOiJzaWduYWxib3giLCJpZCI6ImJlbmNoIiwiaCI6InNoYTI1NiJ9"  # noqa: S105  public key id
"""Base64 of ``{"org":"signalbox","id":"bench","h":"sha256"}``, the form Tyk hashes well."""
_UPSTREAM: Final = "SIGNALBOX_GATEWAY_UPSTREAM_LISTEN"


def answer(obj: Object) -> None:
    """Accept every caller, then answer the same prediction."""
    if obj.hook_name != POST:
        obj.metadata["token"] = TOKEN
        obj.session.rate = 0
        obj.session.last_updated = "1"
        obj.session.metadata["token"] = TOKEN
        return
    overrides = obj.request.return_overrides
    overrides.response_code = 200
    overrides.response_body = ANSWER
    overrides.headers["Content-Type"] = "application/json"
    obj.request.raw_body = b""


class _OnlyAnswers(Dispatcher):
    """Stands where the hooks would."""

    def trusts(self, obj: Object) -> bool:
        return True

    def answered_at_once(self, obj: Object, *, is_ours: bool) -> bool:
        answer(obj)
        return True


async def _aio(obj: Object, _context: object) -> Object:
    answer(obj)
    return obj


async def upstream(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers the same to every request, once it has it."""
    while (await receive()).get("more_body"):
        pass
    body = ANSWER.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(socket: str) -> None:
    """Serve on a unix socket until killed."""
    if os.environ.get("SIGNALBOX_GATEWAY_TRANSPORT") == "native":
        native = NativeServer(GatewaySettings(), _OnlyAnswers(answer, _never, Dialects(Hello())), lambda: True)
        await native.bind(f"unix:{socket}")
    else:
        aio = _aio_server()
        aio.add_insecure_port(f"unix://{socket}")
        await aio.start()
    host, _, port = os.environ[_UPSTREAM].rpartition(":")
    config = uvicorn.Config(upstream, host=host, port=int(port), lifespan="off", log_config=None, access_log=False)
    await uvicorn.Server(config).serve()


def _aio_server() -> grpc.aio.Server:
    handler = grpc.unary_unary_rpc_method_handler(
        _aio, request_deserializer=Object.FromString, response_serializer=Object.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("coprocess.Dispatcher", {"Dispatch": handler}),)
    )
    return server


async def _never(_obj: Object) -> JsonResponse:
    raise AssertionError


@asynccontextmanager
async def running(folder: Path, programs: Programs) -> AsyncIterator[UpStack]:
    """A Tyk before such a plugin, on the files of ours."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            await Tyk(stack, programs, plugin="benchmarks.front.bare").start()
            yield stack
        finally:
            await stack.stop()


async def measure(folder: Path, programs: Programs, *, seconds: float) -> dict[int, float]:
    """Measure answers per second, by requests in flight, through the same Tyk on the same files."""
    rates = {}
    async with running(folder, programs) as stack:
        target = prepare(stack.front_url, PATH, BODY, HEADERS)
        for in_flight in IN_FLIGHT:
            figures = await asyncio.to_thread(run, target, in_flight, seconds=seconds)
            rates[in_flight] = figures.rate
            print(
                f"a plugin that only answers, {in_flight} in flight: {figures.rate:.0f}/s, "
                f"p50 {figures.quantile_ms(0.5):.2f} ms, {dict(figures.statuses)}",
                flush=True,
            )
    return rates


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
