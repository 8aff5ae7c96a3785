"""An upstream that does what the request says and tells what it got, over HTTP and over gRPC.

Run as ``python upstreamprobe.py --http 127.0.0.1:port --h2c 127.0.0.1:port``. The header ``X-Upstream`` holds JSON:
``status`` and ``body`` of the answer, or ``wait``: it never answers; ``events``: as many, half a second apart.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections import Counter
from typing import Any

import grpc
import uvicorn
import uvloop

_SIZES = [(f"grpc.max_{way}_message_length", 128 * 1024 * 1024) for way in ("receive", "send")]
_calls: Counter[str] = Counter()
_waiting = asyncio.Event()


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The HTTP side."""
    parts, has_more = [], True
    while has_more:
        message = await receive()
        parts.append(message.get("body", b""))
        has_more = message.get("more_body", False)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    wanted, seen = await _seen(headers, b"".join(parts))
    query = scope["query_string"].decode()
    seen |= {"method": scope["method"], "url": scope["raw_path"].decode() + (f"?{query}" if query else "")}
    if "events" in wanted:
        await _stream(wanted["events"], send)
        return
    status, body = wanted.get("status", 200), wanted.get("body", json.dumps(seen)).encode()
    answer = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body)), (b"x-own", b"yes")]
    await send({"type": "http.response.start", "status": status, "headers": answer})
    await send({"type": "http.response.body", "body": body})


async def _stream(count: int, send: Any) -> None:
    answer = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": answer})
    for number in range(count):
        await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
        await asyncio.sleep(0.5)
    await send({"type": "http.response.body", "body": b"event: end\ndata:\n\n"})


async def _seen(headers: list[tuple[str, str]], body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the request asks for, and what it looks like."""
    wanted = json.loads(dict(headers).get("x-upstream", "{}"))
    tag = wanted.get("tag", "")
    _calls[tag] += 1
    if wanted.get("wait"):
        _waiting.set()
        await asyncio.Event().wait()
    if wanted.get("was_waiting"):
        await _waiting.wait()
    return wanted, {
        "headers": headers,
        "sha256": hashlib.sha256(body).hexdigest(),
        "size": len(body),
        "calls": _calls[wanted.get("calls_of", tag)],
    }


class _Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs, not in gRPC
    """Every method, but those that are called ``None``. Messages are bytes."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Tell what the call looks like, as JSON."""
        method = handler_call_details.method
        if method.endswith("/None"):
            return None

        async def call(body: bytes, context: Any) -> bytes:
            headers = [(name, value) for name, value in context.invocation_metadata() if isinstance(value, str)]
            wanted, seen = await _seen(headers, body)
            if "abort" in wanted:
                await context.abort(grpc.StatusCode[wanted["abort"]], wanted.get("body", ""))
            return json.dumps(seen | {"url": method}).encode()

        return grpc.unary_unary_rpc_method_handler(call)


async def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", required=True)
    parser.add_argument("--h2c", required=True)
    given = parser.parse_args()
    over_grpc = grpc.aio.server(handlers=[_Methods()], options=_SIZES)
    over_grpc.add_insecure_port(given.h2c)
    await over_grpc.start()
    host, _, port = given.http.rpartition(":")
    config = uvicorn.Config(app, host=host, port=int(port), http="h11", ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  it tells nobody
        await asyncio.sleep(0.01)
    sys.stdout.write("upstream is ready\n")
    sys.stdout.flush()
    await serving


if __name__ == "__main__":
    uvloop.run(main())
