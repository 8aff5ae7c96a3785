"""An edge that calls the hooks in its own process answers as one that sends them Tyk's messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway_plugin.edge.definition import SOURCE
from gateway_plugin.edge.server import EdgeServer
from gateway_plugin.service.jsonresponses import JsonResponse, json_response, refusal
from gateway_plugin.service.request import Request
from gateway_plugin.upstream.callers import Callers
from gateway_plugin.upstream.http import HttpUpstream
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.wire.messages import ApiKey
from tests.rigs.gateway import Key, Rig, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

LIMIT_S = 60
SECRET = "between us"
PREDICT = "/v1/models/half:predict"
GOOD = b'{"instances":[1.0]}'
OF_ONE_REQUEST = {
    "date",
    "x-signalbox-job-id",
    "location",
    "server-timing",
    "x-signalbox-queue-ms",
    "x-ratelimit-reset",
}
"""Headers whose values differ from one request to the next."""

Ways = tuple[httpx.AsyncClient, httpx.AsyncClient]
Seen = tuple[int, dict[str, str], bytes]


@asynccontextmanager
async def both(front: Rig, secret: str = SECRET) -> AsyncIterator[Ways]:
    """Clients of two edges on one plugin: by messages, and without."""
    gateway = front.gateway
    by_messages = await EdgeServer.start(gateway.dispatcher.dispatch, listen="127.0.0.1:0", secret=secret)
    direct = await EdgeServer.start(gateway.of_edge, listen="127.0.0.1:0", secret=secret, bodies=gateway.bodies)
    try:
        async with (
            httpx.AsyncClient(base_url=f"http://{by_messages.address}", timeout=LIMIT_S) as one,
            httpx.AsyncClient(base_url=f"http://{direct.address}", timeout=LIMIT_S) as other,
        ):
            yield one, other
    finally:
        await by_messages.close(1)
        await direct.close(1)


async def seen(client: httpx.AsyncClient, path: str, headers: dict[bytes, bytes], body: bytes, method: str) -> Seen:
    answer = await client.request(method, path, headers=headers, content=body)
    kept = {name: "" if name in OF_ONE_REQUEST else value for name, value in answer.headers.items()}
    return answer.status_code, kept, answer.content


async def same(
    ways: Ways, whose: Key | str, body: bytes = GOOD, *, path: str = PREDICT, method: str = "POST", **more: str
) -> Seen:
    """What both ways answer, which is the same."""
    text = whose if isinstance(whose, str) else whose.text
    headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    sent = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    first, second = [await seen(client, path, sent, body, method) for client in ways]
    assert first == second
    return second


async def test_every_answer_is_the_same(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, both(front) as ways, ScriptedWorker(front.bus, "half"):
        mine, blind = key(), key(scopes=("jobs:read",))
        await front.publish(model("half"), mine, blind)
        status, headers, body = await same(ways, mine)
        assert (status, body) == (200, b'{"predictions":[2.5]}')
        assert headers["content-type"] == "application/json"
        for refused, wanted in (
            (await same(ways, "sbx_test_nobody"), 401),
            (await same(ways, blind), 403),
            (await same(ways, mine, b'{"instances":[1.0'), 400),
            (await same(ways, mine, b'{"instances":["x"]}'), 400),
            (await same(ways, mine, path="/v1/models/none:predict"), 404),
            (await same(ways, mine, path="/v1/jobs/none", method="GET"), 404),
            (await same(ways, mine, path="/v1/jobs", method="PUT"), 405),
            (await same(ways, mine, path=PREDICT + "?a=%ff"), 200),
            (await same(ways, mine, X_A="caf\xe9"), 200),
            (await same(ways, "sbx_\xe9"), 401),
            (await same(ways, mine, path="/v1/jobs", Content_Encoding="br"), 415),
        ):
            assert refused[0] == wanted
        assert (await same(ways, "sbx_test_nobody"))[1]["www-authenticate"] == "Bearer"
        assert (await same(ways, mine, path="/v1/models/half", method="GET"))[0] == 200
    assert front.gateway.bodies.held == 0


async def test_limits_of_a_key_are_the_same(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, both(front) as ways, ScriptedWorker(front.bus, "half"):
        quick, few = key(rate=2, per_s=3600), key(quota=2, quota_window_s=3600)
        near, far = key(networks=("127.0.0.0/8",)), key(networks=("10.0.0.0/8",))
        await front.publish(model("half"), quick, few, near, far)
        assert [(await same(ways, quick))[0] for _ in range(3)] == [200, 200, 429]
        assert [(await same(ways, few))[0] for _ in range(3)] == [200, 200, 429]
        assert (await same(ways, near))[0] == 200
        assert (await same(ways, near, X_Client_Addr="10.0.0.1"))[0] == 200
        assert (await same(ways, near, X_Forwarded_For="127.0.0.1"))[0] == 401
        assert (await same(ways, far, X_Client_Addr="10.0.0.1"))[0] == 401


class Echo:
    """A dialect of the upstream that says whose call it is."""

    prefix = "/v2"

    def is_keyless(self, method: str, path: str) -> bool:
        return path == "/v2/health/live"

    async def answer(self, request: Request, key: ApiKey | None) -> JsonResponse:
        return json_response(200, {"key": key.id if key else "", "size": len(request.raw_body)})

    def refusal(self, error: SignalboxError) -> JsonResponse:
        return refusal(error, self.prefix)


@pytest.mark.parametrize("proxies", [0, 1])
async def test_the_upstream_knows_whose_call_it_is_and_where_it_comes_from(
    nats: NatsServer, tmp_path: Path, proxies: int
) -> None:
    async with rig(nats.url, tmp_path, trusted_proxies=proxies) as front:
        gateway = front.gateway
        callers = Callers(gateway.auth, gateway.keyring, trusted_proxies=proxies)
        app = HttpUpstream([Echo()], callers, gateway.bodies, limit_bytes=100_000, answer_s=30)
        server = await EdgeServer.start(gateway.of_edge, listen="127.0.0.1:0", secret=SECRET, upstream=app)
        mine, near, far = key(rate=1, per_s=3600), key(networks=("127.0.0.0/8",)), key(networks=("10.0.0.0/8",))
        await front.publish(mine, near, far)
        async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=LIMIT_S) as client:

            async def ask(whose: Key | None, **headers: str) -> httpx.Response:
                given = {name.replace("_", "-"): value for name, value in headers.items()}
                sent = given | ({"Authorization": f"Bearer {whose.text}"} if whose else {})
                return await client.post("/v2/models/m/infer", headers=sent, content=b"12345")

            assert (await ask(mine)).json() == {"key": mine.stored.id, "size": 5}
            assert (await ask(mine)).status_code == 429
            refused = await ask(None)
            assert (refused.status_code, list(refused.json())) == (401, ["error"])
            assert (await client.get("/v2/health/live")).json()["key"] == ""
            through = {"X_Forwarded_For": "10.9.9.9, 127.0.0.5"}
            told = through if proxies else {}
            assert (await ask(near, X_Client_Addr="10.0.0.1", **told)).status_code == 200
            assert (await ask(far, X_Client_Addr="10.0.0.1", **told)).status_code == 401
            forged = {"X_Forwarded_For": "127.0.0.5, 10.9.9.9"} if proxies else through
            assert (await ask(near, **forged)).status_code == 401
        await server.close(1)
    assert front.gateway.bodies.held == 0


async def test_an_api_that_is_not_ours_is_refused(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, both(front, "not ours") as ways:
        mine = key()
        await front.publish(model("half"), mine)
        assert (await same(ways, mine))[0] == 503


async def test_hooks_of_other_names_are_refused_at_the_start(nats: NatsServer, tmp_path: Path) -> None:
    files = tmp_path / "tyk"
    for path in SOURCE.rglob("*"):
        if path.is_file():
            copied = files / path.relative_to(SOURCE)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text(path.read_text().replace("SignalboxPost", "OtherPost"))
    async with rig(nats.url, tmp_path) as front:
        with pytest.raises(Misconfigured, match="not those of it"):
            await EdgeServer.start(front.gateway.of_edge, listen="127.0.0.1:0", folder=files)
