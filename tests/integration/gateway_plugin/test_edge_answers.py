"""The edge answers what Tyk's hooks answer, with the limits of a key before it, and the dialects beside them."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from signalbox.wire.keydocs import ApiKey
from tests.rigs.edge import counted, edge
from tests.rigs.gateway import Key, Rig, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

PREDICT = "/v1/models/half:predict"
INFER = "/v2/models/half/infer"
GOOD = b'{"instances":[1.0]}'
OF_ONE_REQUEST = {"X-Signalbox-Job-Id", "Location", "Server-Timing", "X-Signalbox-Queue-Ms"}
"""Headers whose values differ from one request to the next."""
NOBODY = Key("sbx_test_nobody", ApiKey(id="nobody", account_id="nobody", hmac=""))


async def ask(
    client: httpx.AsyncClient,
    whose: Key | None,
    path: str = PREDICT,
    method: str = "POST",
    body: bytes = GOOD,
    **more: str,
) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    if whose is not None:
        headers["Authorization"] = f"Bearer {whose.text}"
    sent = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    return await client.request(method, path, headers=sent, content=b"" if method == "GET" else body)


async def same(
    front: Rig, client: httpx.AsyncClient, whose: Key, body: bytes = GOOD, *, path: str = PREDICT, method: str = "POST"
) -> httpx.Response:
    """What the edge answers, as the hooks do."""
    by_hooks = await front.call(method, path, b"" if method == "GET" else body, key=whose)
    answer = await ask(client, whose, path, method, body)
    assert (answer.status_code, answer.content) == (by_hooks.status, by_hooks.body)
    for name in by_hooks.headers.keys() - OF_ONE_REQUEST:
        assert answer.headers[name] == by_hooks.headers[name], name
    assert OF_ONE_REQUEST & by_hooks.headers.keys() <= {name.title() for name in answer.headers}
    return answer


async def test_every_answer_is_that_of_the_hooks(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client, ScriptedWorker(front.bus, "half"):
        mine, blind = key(), key(scopes=("jobs:read",))
        await front.publish(model("half"), mine, blind)
        answer = await same(front, client, mine)
        assert (answer.status_code, answer.content) == (200, b'{"predictions":[2.5]}')
        assert answer.headers["content-type"] == "application/json"
        for refused, wanted in (
            (await same(front, client, NOBODY), 401),
            (await same(front, client, blind), 403),
            (await same(front, client, mine, b'{"instances":[1.0'), 400),
            (await same(front, client, mine, b'{"instances":["x"]}'), 400),
            (await same(front, client, mine, path="/v1/models/none:predict"), 404),
            (await same(front, client, mine, path="/v1/jobs/none", method="GET"), 404),
            (await same(front, client, mine, path="/v1/jobs", method="PUT"), 405),
            (await same(front, client, mine, path="/elsewhere"), 404),
            (await same(front, client, mine, path=PREDICT + "?a=%ff"), 200),
            (await ask(client, mine, X_A="caf\xe9"), 200),
            (await ask(client, None, Authorization="sbx_\xe9"), 401),
            (await ask(client, mine, "/v1/jobs", Content_Encoding="br"), 415),
            (await ask(client, mine, PREDICT + "?a=" + "\xff"), 200),
        ):
            assert refused.status_code == wanted, refused.request
        assert (await ask(client, NOBODY)).headers["www-authenticate"] == "Bearer"
        assert (await same(front, client, mine, path="/v1/models/half", method="GET")).status_code == 200
    assert front.gateway.bodies.held == 0


async def test_a_key_is_looked_at_once_though_it_is_sent_twice(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client:
        mine = key()
        await front.publish(mine)
        twice = [("Authorization", mine.text), ("Authorization", mine.text)]
        assert (await client.get("/v1/models", headers=twice)).status_code == 401
        assert (await client.get("/v1/models", headers={"X-Api-Key": mine.text})).status_code == 200


@pytest.mark.parametrize(
    ("fields", "bound", "left_s"),
    [({"rate": 3, "per_s": 600}, "rate", 600), ({"quota": 3, "quota_window_s": 900}, "quota", 900)],
)
async def test_limits_of_a_key_are_one_over_all_dialects(
    nats: NatsServer, tmp_path: Path, fields: dict[str, Any], bound: str, left_s: int
) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client:
        mine = key(**fields)
        await front.publish(model("half"), mine)
        before = counted(f"limit_exceeded:{bound}")
        paths = ["/v1/models", "/v2/models", "/v1/jobs/none"]
        answers = [await ask(client, mine, path, "GET") for path in paths]
        assert [answer.status_code for answer in answers] == [200, 200, 404]
        refused = [await ask(client, mine, path, "GET") for path in paths]
        assert [answer.status_code for answer in refused] == [429] * 3
        assert [list(answer.json()) for answer in refused[:2]] == [["error"]] * 2
        assert refused[2].json()["code"] == "limit_exceeded"
        assert "rate" not in refused[2].json()
        assert all(left_s - 60 < int(answer.headers["Retry-After"]) <= left_s for answer in refused)
        assert counted(f"limit_exceeded:{bound}") == before + 3
        left = [answer.headers.get("X-Ratelimit-Remaining") for answer in [*answers, *refused]]
        assert left == (["2", "1", "0", "0", "0", "0"] if bound == "rate" else [None] * 6)


async def test_a_key_of_other_networks_is_refused_and_not_charged(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client:
        near, far = key(networks=("127.0.0.0/8",), rate=2, per_s=3600), key(networks=("10.0.0.0/8",))
        await front.publish(model("half"), near, far)

        async def status(whose: Key, **headers: str) -> int:
            return (await ask(client, whose, "/v1/models", "GET", b"", **headers)).status_code

        assert await status(near, X_Forwarded_For="127.0.0.1") == 401
        assert await status(near) == 200
        assert await status(near, X_Client_Addr="10.0.0.1") == 200
        assert await status(far, X_Client_Addr="10.0.0.1") == 401


async def test_behind_a_proxy_the_address_is_the_one_it_saw(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path, trusted_proxies=1) as front, edge(front) as client:
        near = key(networks=("127.0.0.0/8",))
        await front.publish(near)
        for forwarded, status in (("10.9.9.9, 127.0.0.5", 200), ("127.0.0.5, 10.9.9.9", 401)):
            answer = await ask(client, near, "/v2/models", "GET", X_Forwarded_For=forwarded)
            assert answer.status_code == status


async def test_health_needs_no_key_and_what_only_looks_like_it_does(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front, edge(front) as client:
        for path, document in (
            ("/hello", {"status": "pass"}),
            ("/v2/health/live", {"live": True}),
            ("/v2/health/ready", {"ready": True}),
        ):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, document)
            head = await client.head(path)
            assert (head.status_code, head.content) == (200, b"")
        assert (await client.get("/v2/models/none/ready")).status_code == 404
        for path in ("/hello/x", "/v2/models/ready", "/v2/models/a%2Fb", "/v2/ready", "/v2/models/m/infer/ready"):
            assert (await client.get(path)).status_code == 401, path


@pytest.mark.parametrize("is_let", [True, False])
async def test_pages_of_other_origins_may_ask_where_a_setting_lets_them(
    nats: NatsServer, tmp_path: Path, is_let: bool
) -> None:
    async with rig(nats.url, tmp_path, cors=is_let) as front, edge(front) as client:
        origin = {"Origin": "https://example.org"}
        asked = await client.options(PREDICT, headers=origin)
        assert asked.status_code == (200 if is_let else 401)
        for answer in (asked, await client.post(PREDICT, headers=origin, content=GOOD)):
            assert ("access-control-allow-origin" in answer.headers) == is_let
        ours = await client.options("/v1/jobs", headers=origin)
        assert "access-control-allow-origin" not in ours.headers
