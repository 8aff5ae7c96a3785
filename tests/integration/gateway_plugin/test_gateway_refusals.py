"""What is refused, with which status, and in the shape of the protocol that was spoken."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_plugin.admission.refusals import REFUSED as REFUSED_FOR_ROOM
from gateway_plugin.hooks.dispatcher import REFUSED
from gateway_plugin.service.waiting import End
from signalbox.bus import table
from signalbox.program import metrics
from signalbox.wire.messages import Access, Signature, TensorSpec, Version
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.tensors import MAX_HOLLOW, Tensor
from tests.rigs.gateway import (
    HALF_PLUS_TWO,
    Key,
    Reply,
    Rig,
    ScriptedWorker,
    key,
    limits,
    model,
    reached,
    reply_of,
    rig,
)
from tests.rigs.natsserver import NatsServer

PREDICT = "/v1/models/half:predict"


@pytest.fixture
async def front(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(nats.url, tmp_path) as made:
        yield made


async def queued(front: Rig) -> int:
    info = await front.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
    return int(info["state"]["messages"])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"instances": [1.0,}', 400, "at offset: 19"),
        (b'{"instances": [1.0], "inputs": [1.0]}', 400, "not both"),
        (b"{}", 400, "Missing 'inputs' or 'instances' key"),
        (b"[1.0]", 400, "must be a JSON object"),
        (b'{"instances": ["one"]}', 400, 'Input "x": expected float32, got a string at [0].'),
        (b'{"instances": [[1.0], [2.0, 3.0]]}', 400, "got a list of 2 at [1]"),
        (b'{"inputs": {"z": [1.0]}}', 400, 'has no input "x"'),
        (b'{"instances": [true]}', 400, "got a boolean at [0]"),
        (b'{"instances": [1.0], "signature_name": "nope"}', 400, "not found in signature def"),
        (b"", 400, "JSON Parse error: The document is empty"),
    ],
)
async def test_bad_input_is_answered_here_and_never_queued(
    front: Rig, mine: Key, body: bytes, status: int, words: str
) -> None:
    got = await front.call("POST", PREDICT, body, key=mine)
    assert got.status == status
    assert set(got.doc) == {"error"}
    assert words in got.doc["error"]
    assert got.headers["Content-Type"] == "application/json"
    assert await queued(front) == 0


async def test_a_body_in_another_coding_is_taken_as_it_stands_and_the_refusal_says_so(front: Rig, mine: Key) -> None:
    got = await front.call("POST", PREDICT, b"\x28\xb5\x2f\xfd", key=mine, headers={"Content-Encoding": "zstd"})
    assert got.status == 400
    assert got.doc["error"].startswith("JSON Parse error: ")
    assert got.doc["error"].endswith(" The body was not decoded: of Content-Encoding only gzip is taken, not 'zstd'.")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/models/none:predict", 404, "Servable not found for request: Latest(none)"),
        ("/v1/models/half/versions/9:predict", 404, "Specific(half, 9)"),
        ("/v1/models/half/labels/beta:predict", 400, "Unrecognized servable version label: beta"),
        ("/v1/models/half:PREDICT", 400, "Malformed request: POST"),
        ("/v1/models", 400, "takes GET"),
        ("/v1/models/versions/3", 400, "Malformed request: POST /v1/models/versions/3"),
        ("/v1/anything", 400, "Malformed request: POST /v1/anything"),
    ],
)
async def test_wrong_paths_are_named_in_the_words_of_tensorflow_serving(
    front: Rig, mine: Key, path: str, status: int, words: str
) -> None:
    got = await front.call("POST", path, {"instances": [1.0]}, key=mine)
    assert (got.status, words in got.doc["error"]) == (status, True)


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


async def test_bad_json_to_an_unknown_model_is_400_as_in_tensorflow_serving(front: Rig, mine: Key) -> None:
    got = await front.call("POST", "/v1/models/none:predict", b"{", key=mine)
    assert got.status == 400


async def test_a_wrong_method_is_400_as_in_tensorflow_serving_or_405_and_says_what_is_allowed(
    front: Rig, mine: Key
) -> None:
    on_theirs = await front.call("GET", PREDICT, key=mine)
    on_ours = await front.call("PUT", "/v1/jobs/x", key=mine)
    assert (on_theirs.status, on_theirs.headers["Allow"]) == (400, "POST")
    assert on_theirs.doc["error"].startswith(f"Malformed request: GET {PREDICT}. ")
    assert (on_ours.status, on_ours.headers["Allow"]) == (405, "GET, HEAD, DELETE")
    assert on_ours.headers["Content-Type"] == "application/problem+json"
    assert on_ours.doc["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("fields", "words", "nearest"),
    [
        ({"dedline_s": 5}, 'an unknown field: "dedline_s". Did you mean "deadline_s"?', "deadline_s"),
        ({"Priority": "lo"}, '"Priority". Did you mean "priority"?', "priority"),
        ({"colour": 1}, 'unknown field: "colour". This call takes "model", "version"', None),
        ({"x" * 500: 1}, f'unknown field: "{"x" * 60}". This', None),
        ({f"f{n}": n for n in range(9)}, 'fields: "f0", "f1", "f2" and 6 more. This', None),
    ],
)
@pytest.mark.parametrize("padding", [0, 100_000])
async def test_a_field_that_nobody_knows_is_named_and_not_dropped(
    front: Rig, mine: Key, fields: dict[str, Any], words: str, nearest: str | None, padding: int
) -> None:
    body = {"model": "half", "input": {"x": [1.0] * (1 + padding)}, **fields}
    got = await front.call("POST", "/v1/jobs", body, key=mine)
    assert (got.status, got.doc["code"]) == (400, "invalid_request")
    assert words in got.doc["detail"]
    assert got.doc.get("nearest") == nearest
    assert got.doc["field"] == next(iter(fields))[:60]
    assert await queued(front) == 0
    theirs = await front.call("POST", PREDICT, {"instances": [1.0], **fields}, key=mine, headers={"Prefer": "wait=0"})
    assert theirs.status == 504, "TensorFlow Serving looks at its own fields only"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"instance": [1.0] * 40_000}, "instance", 'field: "instance". Did you mean "instances"?'),
        ({"inptu": {"x": [1.0] * 40_000}}, "inptu", 'field: "inptu". Did you mean "input"?'),
        ({"instance": "x" * 100_000}, "instance", 'field: "instance". Did you mean "instances"?'),
        ({"input": {"x": [1.0]}, "deadline_s": [1] * 40_000}, "deadline_s", '"deadline_s" must be'),
        ({"input": {"x": [1.0]}, "label": "x" * 100_000}, None, "Unrecognized servable version"),
    ],
)
async def test_a_field_is_named_however_much_it_holds(
    front: Rig, mine: Key, fields: dict[str, Any], field: str | None, words: str
) -> None:
    got = await front.call("POST", "/v1/jobs", {"model": "half", **fields}, key=mine)
    assert (got.status, got.doc["code"]) == (400, "invalid_request")
    assert got.doc.get("field") == field
    assert words in got.doc["detail"]
    assert await queued(front) == 0


async def test_tensorflow_serving_s_calls_look_past_a_large_field_they_do_not_know(front: Rig, mine: Key) -> None:
    missing = await front.call("POST", PREDICT, {"instance": [1.0] * 40_000}, key=mine)
    assert (missing.status, missing.doc["error"]) == (400, "Missing 'inputs' or 'instances' key")
    more = {"instances": [1.0], "examples": [1.0] * 40_000}
    got = await front.call("POST", PREDICT, more, key=mine, headers={"Prefer": "wait=0"})
    assert got.status == 504, "it waits for a worker"


async def test_a_cancellation_takes_no_fields(front: Rig, mine: Key) -> None:
    body = {"model": "half", "input": {"x": [1.0]}}
    job = (await front.call("POST", "/v1/jobs", body, key=mine)).headers["Location"]
    got = await front.call("POST", f"{job}/cancel", {"reason": "late"}, key=mine)
    assert got.status == 400
    assert '"reason". This call takes no fields' in got.doc["detail"]
    assert (await front.call("DELETE", job, b"{", key=mine)).doc["code"] == "invalid_json"
    assert (await front.call("GET", job, key=mine)).doc["state"] == "queued"
    assert (await front.call("POST", f"{job}/cancel", {}, key=mine)).status == 200


@pytest.mark.parametrize("body", [b"", b" ", b"null", b" null\n", b"{}"])
async def test_a_cancellation_s_body_may_be_nothing_in_every_way(front: Rig, mine: Key, body: bytes) -> None:
    accepted = await front.call("POST", "/v1/jobs", {"model": "half", "inputs": [1.0]}, key=mine)
    assert (await front.call("DELETE", accepted.headers["Location"], body, key=mine)).status == 200


async def test_an_empty_label_is_an_unknown_one(front: Rig, mine: Key) -> None:
    body = {"model": "half", "label": "", "inputs": [1.0]}
    got = await front.call("POST", "/v1/jobs", body, key=mine)
    assert (got.status, got.doc["detail"]) == (400, "Unrecognized servable version label: ")
    assert await queued(front) == 0


async def test_the_first_version_s_job_shape_gets_a_clear_400(front: Rig, mine: Key) -> None:
    body = {"request_id": "1", "image_data": "aGk=", "timestamp": "2024-01-01T00:00:00Z"}
    got = await front.call("POST", "/v1/jobs", body, key=mine)
    assert got.status == 400
    assert got.headers["Content-Type"] == "application/problem+json"
    assert '"model"' in got.doc["detail"]
    assert "image_data" in got.doc["detail"]


async def test_inputs_above_the_model_s_limit_are_413(front: Rig, mine: Key) -> None:
    await front.publish(model(limits=limits(max_payload_bytes=16)))
    got = await front.call("POST", PREDICT, {"instances": [1.0] * 5}, key=mine)
    assert got.status == 413
    assert "at most 16" in got.doc["error"]


async def test_a_body_above_the_plugin_s_limit_is_413_and_not_parsed(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path, max_body_bytes=1024) as front:
        mine = key()
        await front.publish(model(), mine)
        got = await front.call("POST", PREDICT, b"{" + b" " * 2000, key=mine)
    assert got.status == 413


async def test_a_bomb_of_a_gzip_body_is_413(nats: NatsServer, tmp_path: Path) -> None:
    import gzip

    async with rig(nats.url, tmp_path, max_body_bytes=100_000) as front:
        mine = key()
        await front.publish(model(), mine)
        got = await front.call(
            "POST", PREDICT, gzip.compress(b" " * 10_000_000), key=mine, headers={"Content-Encoding": "gzip"}
        )
    assert got.status == 413


async def test_a_full_queue_is_429_with_retry_after(front: Rig, mine: Key) -> None:
    await front.publish(model(limits=limits(max_queue=2)))
    asynchronous = {"Prefer": "respond-async"}
    statuses = [
        (await front.call("POST", PREDICT, {"instances": [1]}, key=mine, headers=asynchronous)).status for _ in range(2)
    ]
    refused = await front.call("POST", PREDICT, {"instances": [1]}, key=mine, headers=asynchronous)
    assert statuses == [202, 202]
    assert refused.status == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert "full" in refused.doc["error"]
    assert await queued(front) == 2


async def test_a_disk_of_nats_without_room_takes_no_job_and_lets_those_there_end(
    front: Rig, mine: Key, nats: NatsServer, tmp_path: Path
) -> None:
    await front.publish(model())
    asynchronous = {"Prefer": "respond-async"}
    body = {"instances": [1.0]}
    job = (await front.call("POST", PREDICT, body, key=mine, headers=asynchronous)).doc["id"]
    (tmp_path / "other").mkdir()
    async with rig(nats.url, tmp_path / "other", nats_store=str(tmp_path), nats_reserve_bytes=2**62) as full:
        before = REFUSED_FOR_ROOM.labels("disk")._value.get()
        for headers in (asynchronous, {}):
            got = await full.call("POST", PREDICT, body, key=mine, headers=headers)
            assert got.status == 503
            assert int(got.headers["Retry-After"]) >= 1
            assert "The disk of NATS has less than" in got.doc["error"]
            assert str(tmp_path) not in got.doc["error"]
        assert REFUSED_FOR_ROOM.labels("disk")._value.get() == before + 2
        assert await queued(full) == 1
        async with ScriptedWorker(full.bus, "half") as worker, asyncio.timeout(60):
            await worker.finished.wait()
        ended = await full.call("GET", f"/v1/jobs/{job}", key=mine)
        assert (ended.status, ended.doc["state"]) == (200, "succeeded")


@pytest.mark.parametrize(("change", "words"), [({"is_enabled": False}, "disabled"), ({"replicas": 0}, "no replicas")])
async def test_a_model_that_may_not_run_says_why(front: Rig, mine: Key, change: dict[str, Any], words: str) -> None:
    await front.publish(model(**change))
    got = await front.call("POST", PREDICT, {"instances": [1.0]}, key=mine)
    assert got.status == 503
    assert words in got.doc["error"]
    assert "Retry-After" in got.headers
    assert await queued(front) == 0


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


@pytest.mark.parametrize("elements", [0, 40_000])
async def test_a_result_that_is_larger_written_than_stored_is_our_failure(front: Rig, mine: Key, elements: int) -> None:
    bulk = Tensor("bulk", "float32", (elements,), bytes(4 * elements))
    hollow = Tensor("y", "string", (MAX_HOLLOW + 1, 0), b"")
    async with ScriptedWorker(front.bus, "half", lambda _: [bulk, hollow]):
        got = await front.call("POST", PREDICT, {"inputs": [1.0]}, key=mine)
        job = await front.call(
            "POST", "/v1/jobs", {"model": "half", "inputs": [1.0]}, key=mine, headers={"Prefer": "wait=30"}
        )
    assert got.status == 500
    assert (job.status, job.doc["result"], job.doc["error"]["code"]) == (200, None, "internal")


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
    assert await queued(front) == 0
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


async def test_every_refusal_is_counted_with_its_reason(front: Rig, mine: Key) -> None:
    def counted(reason: str) -> float:
        return metrics.REGISTRY.get_sample_value("signalbox_refused_total", {"reason": reason}) or 0

    sent: list[tuple[str, bytes, dict[str, str]]] = [
        ("unsupported_encoding:encoding", b"{}", {"Content-Encoding": "zstd"}),
        ("invalid_json", b"{", {}),
        ("invalid_json:depth", b'{"instances": [1], "a": ' + b"[" * 40 + b"]" * 40 + b"}", {}),
        ("invalid_json:names", b'{"instances": [1], "instances": [2]}', {}),
        ("invalid_input", b'{"instances": ["x"]}', {}),
        ("invalid_request:encoding", b"{}", {"Content-Encoding": "gzip"}),
        ("invalid_request:header", b"{}", {"Idempotency-Key": ""}),
    ]
    for reason, body, headers in sent:
        before = counted(reason)
        path = "/v1/jobs" if reason.startswith("unsupported") else PREDICT
        got = await front.call("POST", path, body, key=mine, headers=headers)
        assert 400 <= got.status < 500, (reason, got)
        assert counted(reason) == before + 1, (reason, got)
    assert await queued(front) == 0


async def test_an_unknown_hook_is_answered_and_the_object_is_kept(front: Rig) -> None:
    answered = await front.dispatch(front.object("Nothing", "GET", "/v1/models", b"", {}))
    got = reply_of(answered)
    assert got is not None
    assert got.status == 500
    assert (answered.request.url, answered.request.method) == ("/v1/models", "GET")


async def test_two_inputs_are_told_apart_by_name(front: Rig, mine: Key) -> None:
    spec = TensorSpec(dtype="int32", shape=(-1, 2))
    pair = Signature(inputs={"a": spec, "b": spec}, outputs=HALF_PLUS_TWO.outputs)
    version = Version(version=1, path="/nowhere", signatures={"serving_default": pair})
    await front.publish(model("pair", versions=(version,)))
    got = await front.call("POST", "/v1/models/pair:predict", {"instances": [{"a": [1, 2]}]}, key=mine)
    assert got.status == 400
    assert '"instances"[0] has no input "b"' in got.doc["error"]
