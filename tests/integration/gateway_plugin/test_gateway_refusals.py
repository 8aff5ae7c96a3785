"""What is refused, with which status, and in the shape of the protocol that was spoken."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway_plugin.admission.refusals import REFUSED as REFUSED_FOR_ROOM
from signalbox.program import metrics
from signalbox.wire.modeldocs import Signature, TensorSpec, Version
from signalbox.wire.tensors import MAX_HOLLOW, Tensor
from tests.rigs.gateway import (
    HALF_PLUS_TWO,
    Key,
    Rig,
    ScriptedWorker,
    key,
    limits,
    model,
    reply_of,
    rig,
)
from tests.rigs.natsserver import NatsServer

PREDICT = "/v1/models/half:predict"


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
    assert await front.queued() == 0


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
    assert (on_ours.status, on_ours.headers["Allow"]) == (405, "GET, HEAD, PATCH, DELETE")
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
    assert await front.queued() == 0
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
    assert await front.queued() == 0


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
    assert (await front.call("POST", f"{accepted.headers['Location']}/cancel", body, key=mine)).status == 200


async def test_an_empty_label_is_an_unknown_one(front: Rig, mine: Key) -> None:
    body = {"model": "half", "label": "", "inputs": [1.0]}
    got = await front.call("POST", "/v1/jobs", body, key=mine)
    assert (got.status, got.doc["detail"]) == (400, "Unrecognized servable version label: ")
    assert await front.queued() == 0


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
    assert await front.queued() == 2


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
        assert await full.queued() == 1
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
    assert await front.queued() == 0


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
    assert await front.queued() == 0


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
