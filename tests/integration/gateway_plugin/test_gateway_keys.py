"""Who is let in: keys with their scopes, models and networks, and the gateway that asks for them."""

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_plugin.hooks.dispatcher import REFUSED
from gateway_plugin.service.waiting import End
from signalbox.bus import table
from signalbox.wire.modeldocs import Access
from signalbox.wire.names import Bucket
from tests.rigs.gateway import (
    Key,
    Reply,
    Rig,
    ScriptedWorker,
    key,
    model,
    reached,
    reply_of,
    rig,
)
from tests.rigs.natsserver import NatsServer

PREDICT = "/v1/models/half:predict"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/models/{}:predict", {"instances": [1.0]}),
        ("POST", "/v1/models/{}/versions/1:predict", {"instances": [1.0]}),
        ("POST", "/v1/models/{}/labels/stable:predict", {"instances": [1.0]}),
        ("GET", "/v1/models/{}", None),
        ("GET", "/v1/models/{}/versions/1", None),
        ("GET", "/v1/models/{}/labels/stable", None),
        ("GET", "/v1/models/{}/metadata", None),
        ("POST", "/v1/jobs", {"model": "{}", "input": {"x": [1.0]}}),
        ("GET", "/v2/models/{}", None),
        ("GET", "/v2/models/{}/versions/1", None),
        ("GET", "/v2/models/{}/config", None),
        ("GET", "/v2/models/{}/stats", None),
        ("POST", "/v2/models/{}/infer", {"inputs": []}),
    ],
)
async def test_a_closed_model_is_to_other_keys_as_if_it_did_not_exist(
    front: Rig, mine: Key, method: str, path: str, body: Any
) -> None:
    closed = model("closed", access=Access(is_open=False, accounts=("shop",)), labels={"stable": 1})
    let_in = (key(models=("clo*",)), key(account_id="shop"))
    await front.publish(closed, *let_in)

    async def asked(name: str, by: Key) -> tuple[int, str]:
        # Found, a prediction would wait for a worker.
        sent = json.loads(json.dumps(body).replace("{}", name))
        got = await front.call(method, path.format(name), sent, key=by, headers={"Prefer": "wait=0"})
        return got.status, got.body.decode().replace(name, "{}")

    assert await asked("closed", mine) == await asked("nobody", mine)
    assert (await asked("closed", mine))[0] in {400, 404}
    for by in let_in:
        assert await asked("closed", by) != await asked("nobody", by)
    page = await front.call("GET", "/monitoring/prometheus/metrics", key=mine)
    assert b"closed" not in page.body
    for listed, names in (("/v1/models", ["half"]), ("/v2/models", ["half"])):
        assert (await front.call("GET", listed, key=mine)).doc["models"] == names
        assert (await front.call("GET", listed, key=let_in[1])).doc["models"] == ["closed", "half"]
        assert (await front.call("GET", listed, key=let_in[0])).doc["models"] == ["closed"]


async def test_no_key_and_a_wrong_key_are_401_in_our_words(front: Rig, mine: Key) -> None:
    nobody = reply_of(await front.authenticate({}))
    mistyped = reply_of(await front.authenticate({"Authorization": f"Bearer {mine.text}x"}))
    stranger = reply_of(await front.authenticate({"X-Api-Key": key().text}))
    for got in (nobody, mistyped, stranger):
        assert got is not None
        assert got.status == 401
        assert got.headers["Content-Type"] == "application/json"
        assert set(got.doc) == {"error"}


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "{}"])
async def test_a_key_is_taken_with_and_without_its_scheme(front: Rig, mine: Key, form: str) -> None:
    checked = await front.authenticate({"Authorization": form.format(mine.text)})
    assert reply_of(checked) is None
    assert checked.session.metadata["key_id"] == mine.stored.id


async def test_the_session_holds_the_key_s_limits_and_no_secret(front: Rig) -> None:
    mine = key(rate=5, per_s=10, quota=3, quota_window_s=60, expires_at=time.time() + 100)
    await front.publish(mine)
    checked = await front.authenticate({"X-Api-Key": mine.text})
    again = await front.authenticate({"X-Api-Key": mine.text})
    session = checked.session
    assert (session.rate, session.per) == (5, 10)
    assert (session.quota_max, session.quota_renewal_rate) == (3, 60)
    assert session.last_updated == again.session.last_updated
    assert mine.text not in str(session)
    token = json.loads(base64.b64decode(checked.metadata["token"]))
    assert list(token.items()) == [("org", "signalbox"), ("id", mine.stored.id), ("h", "sha256")]
    assert b" " not in base64.b64decode(checked.metadata["token"])


async def test_new_limits_get_a_new_stamp(front: Rig) -> None:
    mine = key(rate=5, updated_at=1.0)
    await front.publish(mine)
    before = await front.authenticate({"X-Api-Key": mine.text})
    changed = Key(mine.text, replace(mine.stored, rate=6, updated_at=2.0))
    await front.publish(changed)
    after = await front.authenticate({"X-Api-Key": mine.text})
    assert after.session.rate == 6
    assert before.session.last_updated != after.session.last_updated


@pytest.mark.parametrize("how", ["revoked", "expired", "removed"])
async def test_a_key_that_has_ended_is_401(front: Rig, mine: Key, how: str) -> None:
    name = mine.stored.id
    if how == "removed":
        revision = await table.remove(front.bus, Bucket.KEYS, name)
    else:
        ended = {"revoked_at" if how == "revoked" else "expires_at": time.time() - 1}
        revision = await table.put(front.bus, Bucket.KEYS, name, replace(mine.stored, **ended))
    await reached(front.gateway._keys, name, revision)
    got = reply_of(await front.authenticate({"X-Api-Key": mine.text}))
    assert got is not None
    assert got.status == 401


async def test_a_key_revoked_between_the_hooks_is_401(front: Rig, mine: Key) -> None:
    checked = await front.authenticate({"X-Api-Key": mine.text})
    revision = await table.remove(front.bus, Bucket.KEYS, mine.stored.id)
    await reached(front.gateway._keys, mine.stored.id, revision)
    obj = front.object("SignalboxPost", "GET", "/v1/models", b"", {})
    obj.session.CopyFrom(checked.session)
    obj.metadata.update(checked.metadata)
    got = reply_of(await front.dispatch(obj))
    assert got is not None
    assert got.status == 401


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (PREDICT, {"instances": [1.0]}, {}),
        ("/v1/jobs", {"model": "half", "input": {"x": [1.0]}}, {"Prefer": "wait=30"}),
        (PREDICT, {"instances": [1.0]}, {"Idempotency-Key": "a"}),
    ],
)
async def test_a_key_revoked_while_its_owner_waits_gets_no_result(
    front: Rig, mine: Key, path: str, body: dict[str, Any], headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters = front.gateway._waiters
    is_followed, follow = asyncio.Event(), waiters.follow

    async def reported(job_id: str, timeout_s: float) -> End | None:
        is_followed.set()
        return await follow(job_id, timeout_s)

    monkeypatch.setattr(waiters, "follow", reported)

    def call() -> asyncio.Task[Reply]:
        return asyncio.create_task(front.call("POST", path, body, key=mine, headers=headers))

    async with ScriptedWorker(front.bus, "half") as worker:
        worker.go.clear()
        calls = [call()]
        await asyncio.wait_for(worker.claimed.wait(), 10)
        if "Idempotency-Key" in headers:  # then a second one waits for the job of the first
            calls.append(call())
            await asyncio.wait_for(is_followed.wait(), 10)
        ended = replace(mine.stored, revoked_at=time.time())
        revision = await table.put(front.bus, Bucket.KEYS, mine.stored.id, ended)
        await reached(front.gateway._keys, mine.stored.id, revision)
        worker.go.set()
        replies = await asyncio.wait_for(asyncio.gather(*calls), 20)
    assert [reply.status for reply in replies] == [401] * len(calls)
    assert all(b"2.5" not in reply.body for reply in replies)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/predict"])
async def test_priority_hi_by_a_key_that_may_not_jump_the_queue_is_403_with_the_mend(
    front: Rig, mine: Key, path: str
) -> None:
    plain = key(scopes=("jobs:submit",))
    await front.publish(plain)
    body = {"model": "half", "input": {"x": [1.0]}}
    counted = REFUSED.labels("forbidden")._value.get()
    got = await front.call("POST", path, {**body, "priority": "hi"}, key=plain)
    assert (got.status, got.doc["code"], got.doc["scope"]) == (403, "forbidden", "jobs:urgent")
    assert "jobs:urgent" in got.doc["detail"]
    assert '"mid"' in got.doc["detail"]
    assert REFUSED.labels("forbidden")._value.get() == counted + 1
    assert await front.queued() == 0
    for priority in ("mid", "lo"):
        got = await front.call("POST", path, {**body, "priority": priority}, key=plain)
        assert (got.status, got.doc["priority"]) == (202, priority)
    got = await front.call("POST", path, {**body, "priority": "hi"}, key=mine)
    assert (got.status, got.doc["priority"]) == (202, "hi")


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("POST", PREDICT, ("jobs:read", "jobs:cancel")),
        ("POST", "/v1/jobs", ("jobs:read", "jobs:cancel")),
        ("GET", "/v1/jobs/0", ("jobs:submit", "jobs:cancel")),
        ("DELETE", "/v1/jobs/0", ("jobs:submit", "jobs:read")),
    ],
)
async def test_a_key_without_the_scope_is_403(
    front: Rig, mine: Key, method: str, path: str, scopes: tuple[str, ...]
) -> None:
    narrow = key(scopes=scopes)
    await front.publish(narrow)
    got = await front.call(method, path, {"instances": [1.0]}, key=narrow)
    assert got.status == 403


@pytest.mark.parametrize(
    "lists",
    [
        {"models": ("other",)},
        {"account_models": ("other",)},
        {"models": ("half", "other"), "account_models": ("other",)},
        {"models": ("other",), "account_models": ("half", "other")},
    ],
    ids=str,
)
async def test_a_key_for_other_models_learns_nothing_of_this_one(
    front: Rig, mine: Key, lists: dict[str, tuple[str, ...]]
) -> None:
    narrow = key(**lists)
    await front.publish(narrow)
    real = await front.call("POST", PREDICT, {"instances": [1.0]}, key=narrow)
    made_up = await front.call("POST", "/v1/models/hulf:predict", {"instances": [1.0]}, key=narrow)
    assert (real.status, made_up.status) == (403, 403)
    assert real.body.replace(b"half", b"hulf") == made_up.body
    listed = await front.call("GET", "/v1/models", key=narrow)
    assert listed.doc["models"] == []


async def test_a_caller_without_the_shared_secret_is_no_gateway(front: Rig, mine: Key) -> None:
    front.spec = {**front.spec, "config_data": '{"secret": "guessed"}'}
    got = reply_of(await front.authenticate({"X-Api-Key": mine.text}))
    assert got is not None
    assert got.status == 503


@pytest.mark.parametrize("field", ["APIID", "OrgID"])
async def test_a_call_of_another_api_or_organisation_is_not_taken(front: Rig, mine: Key, field: str) -> None:
    front.spec = {**front.spec, field: "another"}
    got = reply_of(await front.authenticate({"X-Api-Key": mine.text}))
    assert got is not None
    assert got.status == 503


async def test_strangers_fill_neither_memory_nor_log_and_shut_nobody_out(
    front: Rig, mine: Key, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = front.spec
    for number in range(200):
        front.spec = {**ours, "config_data": json.dumps({"secret": str(number)})}
        got = reply_of(await front.authenticate({"X-Api-Key": mine.text}))
        assert got is not None
        assert got.status == 503
    front.spec = ours
    assert reply_of(await front.authenticate({"X-Api-Key": mine.text})) is None
    assert front.gateway.dispatcher._judge_once.cache_info().currsize <= 64
    assert sum(map("caller_refused".count, capfd.readouterr())) <= 64


async def test_a_key_for_certain_networks_is_good_from_there_alone(front: Rig, mine: Key) -> None:
    bound = key(networks=("192.0.2.0/24",))
    await front.publish(bound)

    async def status(**headers: str) -> int:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await front.call("GET", "/v1/models", key=bound, headers=sent)).status

    assert await status(X_Client_Addr="192.0.2.9") == 200
    assert await status(X_Client_Addr="198.51.100.1") == 401
    assert await status() == 401
    # What the front says is then what the client said.
    assert await status(X_Client_Addr="192.0.2.9", X_Real_Ip="192.0.2.9") == 401
    assert await status(X_Client_Addr="192.0.2.9", X_Forwarded_For="192.0.2.9") == 401


async def test_behind_a_trusted_proxy_its_word_counts_and_the_client_s_does_not(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with rig(nats.url, tmp_path, trusted_proxies=1) as front:
        bound = key(networks=("192.0.2.0/24",))
        await front.publish(bound)
        for forwarded, status in (("192.0.2.9", 200), ("192.0.2.9, 198.51.100.1", 401)):
            headers = {"X-Forwarded-For": forwarded, "X-Client-Addr": "10.0.0.1"}
            got = await front.call("GET", "/v1/models", key=bound, headers=headers)
            assert got.status == status


async def test_an_address_that_guesses_keys_is_told_to_wait(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path, trusted_proxies=1, max_key_failures=3) as front:
        replies = []
        for _ in range(5):
            headers = {"X-Api-Key": key().text, "X-Forwarded-For": "192.0.2.9"}
            got = reply_of(await front.authenticate(headers))
            assert got is not None
            replies.append(got)
        assert [got.status for got in replies] == [401, 401, 401, 429, 429]
        assert int(replies[-1].headers["Retry-After"]) >= 1
