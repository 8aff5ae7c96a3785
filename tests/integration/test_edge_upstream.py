"""What the edge hands on to an application in its own process, once it has checked the key."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from gateway_plugin.edge.server import EdgeServer
from gateway_plugin.hooks.dispatcher import UPSTREAM_AUTH
from gateway_plugin.proto.coprocess_pb2 import HookType, Object

MIB = 1024 * 1024


class Plugin:
    """The key is its own name; ``nobody`` is none and ``slow`` may call once. hooks: those that were called."""

    def __init__(self) -> None:
        self.hooks: list[tuple[str, str]] = []

    async def call(self, obj: Object) -> Object:
        self.hooks.append((obj.hook_name, obj.spec["APIID"]))
        overrides = obj.request.return_overrides
        if obj.hook_type != HookType.CustomKeyCheck:
            overrides.response_code = 200
            return obj
        name = obj.request.headers.get("Authorization", "nobody")
        if name == "nobody":
            overrides.response_code, overrides.override_error = 401, True
            overrides.response_body = '{"error": "who?"}'
            overrides.headers["Content-Type"] = "application/json"
            return obj
        obj.session.metadata["token"] = name
        if name == "slow":
            obj.session.rate, obj.session.per, obj.session.last_updated = 1, 60, "1"
        obj.request.set_headers["x-plan"] = "gold"
        obj.request.delete_headers.extend(["Connection", "X_plan"])
        return obj


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Tells what it got, in chunks as it reads it."""
    size, has_more = 0, True
    while has_more:
        message = await receive()
        size += len(message.get("body", b""))
        has_more = message.get("more_body", False)
    headers = [(name.decode(), value.decode()) for name, value in scope["headers"]]
    body = json.dumps({"path": scope["path"], "headers": headers, "size": size}).encode()
    await send({"type": "http.response.start", "status": 404, "headers": [(b"x-own", b"yes")]})
    await send({"type": "http.response.body", "body": body[:5], "more_body": True})
    await send({"type": "http.response.body", "body": body[5:]})


@asynccontextmanager
async def edge(plugin: Plugin, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    server = await EdgeServer.start(plugin.call, listen="127.0.0.1:0", **more)
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as client:
        yield client
    await server.close(1)


async def test_the_upstream_answers_a_good_key_with_what_it_likes() -> None:
    plugin = Plugin()
    async with edge(plugin, upstream=app) as client:
        body = bytes(3 * MIB)
        answer = await client.post("/v2/models/m/infer", content=body, headers={"Authorization": "me"})
    assert (answer.status_code, answer.headers["x-own"]) == (404, "yes")
    assert (answer.json()["path"], answer.json()["size"]) == ("/v2/models/m/infer", len(body))
    assert plugin.hooks == [(UPSTREAM_AUTH, "signalbox-inference")]


async def test_it_sees_the_callers_credential_and_headers_that_only_the_front_writes() -> None:
    sent = [
        ("Authorization", "me"),
        ("Connection", "close, X-Plan"),
        ("X-Plan", "forged"),
        ("x_plan", "forged"),
        ("X-Client-Addr", "6.6.6.6"),
        ("X-Client-Addr", "7.7.7.7"),
        ("X-Forwarded-For", "5.6.7.8"),
        ("X-Many", "a"),
        ("X-Many", "b"),
    ]
    async with edge(Plugin(), upstream=app) as client:
        answer = await client.get("/v2/models/m", headers=sent)
    seen = answer.json()["headers"]
    assert [value for name, value in seen if name == "authorization"] == ["me"]
    assert [value for name, value in seen if name.replace("_", "-") == "x-plan"] == ["gold"]
    assert [value for name, value in seen if name == "x-client-addr"] == ["5.6.7.8"]
    assert [value for name, value in seen if name == "x-forwarded-for"] == ["5.6.7.8, 127.0.0.1"]
    assert [value for name, value in seen if name == "x-many"] == ["a", "b"]
    assert "connection" not in dict(seen)
    assert len(dict(seen)["x-request-id"]) == 36


@pytest.mark.parametrize("size", [10, 40 * MIB])
async def test_a_refused_key_does_not_reach_it(size: int) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, size, MIB):
            yield bytes(min(MIB, size - at))

    async with edge(Plugin(), upstream=refuses) as client:
        answer = await client.post("/v2/models/m/infer", content=parts())
        assert (answer.status_code, answer.json()) == (401, {"error": "who?"})


async def refuses(*_: object) -> None:
    raise AssertionError("a request that the edge should have answered")


async def test_rate_of_a_key_is_one_over_hooks_and_upstream() -> None:
    mine = {"Authorization": "slow"}
    async with edge(Plugin(), upstream=app) as client:
        first = await client.get("/v2/models/m", headers=mine)
        assert first.headers["x-ratelimit-remaining"] == "0"
        for path in ("/v2/models/m", "/v1/models/m"):
            refused = await client.get(path, headers=mine)
            assert (refused.status_code, refused.json()["code"]) == (429, "limit_exceeded")
            assert 50 < int(refused.headers["retry-after"]) <= 60


@pytest.mark.parametrize(
    "path", ["/v2/health/ready", "/v2/models/m/ready", "/v2/models/m%20n/ready", "/v2/models/m/versions/1/ready"]
)
async def test_health_is_told_without_a_key(path: str) -> None:
    plugin = Plugin()
    async with edge(plugin, upstream=app) as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.json()["path"]) == (404, unquote(path))
    assert plugin.hooks == []


@pytest.mark.parametrize(
    "path", ["/v2/models/ready", "/v2/models/a%2Fb/ready", "/v2/models/m/infer/ready", "/v2/ready"]
)
async def test_what_only_looks_like_health_wants_a_key(path: str) -> None:
    async with edge(Plugin(), upstream=refuses) as client:
        assert (await client.get(path)).status_code == 401


@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_body_above_the_gateways_limit_is_413_where_its_size_is_told(is_declared: bool) -> None:
    """Of a chunked body it is the upstream that finds out."""
    size = 72 * MIB + 1
    headers = {"Authorization": "me"} | ({"Content-Length": str(size)} if is_declared else {})

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(72):
            yield bytes(MIB)
        yield b"x"

    async with edge(Plugin(), upstream=refuses if is_declared else app) as client:
        answer = await client.post("/v2/x", headers=headers, content=parts())
    if is_declared:
        assert (answer.status_code, answer.text) == (413, "Request Entity Too Large\n")
    else:
        assert answer.json()["size"] == size


async def test_what_an_edge_cannot_serve_is_501_with_the_reason() -> None:
    plugin = Plugin()
    async with edge(plugin) as apart, edge(plugin, upstream=refuses) as embedded:
        for client, path, reason in (
            (apart, "/v2/models/m", "Open Inference Protocol"),
            (apart, "/v2/health/live", "Open Inference Protocol"),
            (embedded, "/tensorflow.serving.PredictionService/Predict", "HTTP/2"),
            (embedded, "/inference.GRPCInferenceService/ModelInfer", "HTTP/2"),
            (embedded, "/grpc.health.v1.Health/Check", "HTTP/2"),
        ):
            answer = await client.post(path, headers={"Authorization": "me"}, content=b"x")
            assert answer.status_code == 501
            assert reason in answer.json()["error" if path.startswith("/v2") else "detail"]
    assert plugin.hooks == []
