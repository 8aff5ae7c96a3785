"""Files and batches through the edge, done by the outbound program's task over its own connection."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_plugin.outbound.batches import batchrun
from gateway_plugin.outbound.batches.runner import Batches
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.service.files import CHUNK_BYTES, Files
from gateway_plugin.service.uploads import FILE_BYTES, OPEN_S, Uploads
from signalbox.bus import table, topology
from signalbox.bus.client import Bus
from signalbox.program.errors import LimitExceeded, StaleRevision
from signalbox.program.settings import Wire
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import ErrorInfo, decode, encode
from signalbox.wire.modeldocs import Batching
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import Batch, FileUpload
from signalbox.wire.tensors import Tensor
from tests.integration.gateway_plugin.test_job_results import Edge, edge
from tests.integration.gateway_plugin.test_outbound_process import PASSWORDS, copy
from tests.rigs.gateway import Key, ScriptedWorker, half_plus_two, key, model
from tests.rigs.natsserver import NatsServer

ENDPOINT = "/v1/models/half:predict"
OPEN = ("validating", "in_progress", "cancelling", "finalizing")


@pytest.fixture
def mine() -> Key:
    return key()


@pytest.fixture
async def at(nats: NatsServer, tmp_path: Path, mine: Key) -> AsyncIterator[Edge]:
    async with edge(nats, tmp_path, mine) as made:
        await made.made.publish(model(batching=Batching(rows_independent=True)))
        yield made


@asynccontextmanager
async def doing(nats: NatsServer, **fields: Any) -> AsyncIterator[None]:
    """The task that does batches; cut off at the end, as by a kill."""
    settings = OutboundSettings(nats_url=nats.url, **fields)
    bus = await Bus.connect(settings, role="outbound")
    task = asyncio.create_task(Batches(bus, settings).work())
    try:
        yield
    finally:
        task.cancel()
        done, _ = await asyncio.wait([task])
        await bus.close()
        assert all(one.cancelled() for one in done), done


def line(number: int, **fields: Any) -> dict[str, Any]:
    body = {"instances": [float(number)]}
    return {"custom_id": f"line-{number}", "method": "POST", "url": ENDPOINT, "body": body, **fields}


async def upload(at: Edge, lines: Sequence[object]) -> str:
    data = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines).encode()
    got = await at.client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", data)})
    assert got.status_code == 200, got.text
    assert (got.json()["bytes"], got.json()["filename"]) == (len(data), "in.jsonl")
    content = await at.client.get(f"/v1/files/{got.json()['id']}/content")
    assert content.content == data
    return str(got.json()["id"])


async def begin(at: Edge, file_id: str, **fields: Any) -> str:
    body = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h", **fields}
    got = await at.client.post("/v1/batches", json=body)
    assert got.status_code == 200, got.text
    return str(got.json()["id"])


class Watched:
    """A batch as its document changes."""

    def __init__(self, at: Edge, batch_id: str) -> None:
        self._at = at
        self._id = batch_id
        self._changed = asyncio.Event()

    async def until(self, *states: str, completed: int = 0) -> Any:
        """The batch once it is in one of these states, and so many lines are done."""
        table_ = table.Table(self._at.made.bus, Bucket.BATCHES, Batch)
        table_.on_change(lambda *_: self._changed.set())
        await table_.start()
        try:
            async with asyncio.timeout(60):
                while True:
                    self._changed.clear()
                    doc = (await self._at.client.get(f"/v1/batches/{self._id}")).json()
                    if doc["status"] in states and doc["request_counts"]["completed"] >= completed:
                        return doc
                    await self._changed.wait()
        finally:
            await table_.close()


async def lines_of(at: Edge, file_id: str | None) -> list[Any]:
    if not file_id:
        return []
    got = await at.client.get(f"/v1/files/{file_id}/content")
    assert got.status_code == 200, got.text
    return [json.loads(one) for one in got.text.splitlines()]


async def test_a_batch_is_done_and_bad_lines_are_told_apart(at: Edge, nats: NatsServer) -> None:
    bad = ["{no json", {"custom_id": "wrong", "method": "POST", "url": "/v1/other", "body": {}}, ""]
    other = line(7, body={"instances": ["text"]})
    deep = json.dumps(line(8)).replace("8.0", "[" * 50_000 + "]" * 50_000)
    file_id = await upload(at, [*(line(number) for number in range(5)), *bad, deep, other])
    batch = await begin(at, file_id, metadata={"run": "nightly"})
    async with ScriptedWorker(at.made.bus, "half"), doing(nats):
        doc = await Watched(at, batch).until("completed", "failed")
    assert doc["request_counts"] == {"total": 9, "completed": 5, "failed": 4}
    assert (doc["status"], doc["metadata"], doc["errors"]) == ("completed", {"run": "nightly"}, None)
    found = {one["custom_id"]: one for one in await lines_of(at, doc["output_file_id"])}
    assert {name: one["response"]["body"] for name, one in found.items()} == {
        f"line-{number}": {"predictions": [number / 2 + 2]} for number in range(5)
    }
    assert all(one["response"]["status_code"] == 200 and one["error"] is None for one in found.values())
    failed = {one["custom_id"]: one["error"]["code"] for one in await lines_of(at, doc["error_file_id"])}
    assert failed == {None: "invalid_json", "wrong": "invalid_request", "line-7": "invalid_input"}
    job = (await at.client.get(f"/v1/jobs/{found['line-3']['response']['request_id']}")).json()
    assert (job["priority"], job["tags"], job["state"]) == ("lo", [batch], "succeeded")


async def test_each_line_comes_once_though_the_program_is_ended_in_the_middle(
    at: Edge, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchrun, "_FLUSH_S", 0.02)
    seen: list[float] = []

    def compute(inputs: Sequence[Tensor]) -> Sequence[Tensor] | ErrorInfo:
        seen.append(1.0)
        return half_plus_two(inputs)

    batch = await begin(at, await upload(at, [line(number) for number in range(500)]))
    watched = Watched(at, batch)
    async with ScriptedWorker(at.made.bus, "half", compute):
        for done in (1, 120, 250):
            async with doing(nats, batch_window=8):
                doc = await watched.until(*OPEN, completed=done)
                kept = await at.client.delete(f"/v1/files/{doc['output_file_id']}")
                assert kept.status_code == 409
            half = await lines_of(at, (await watched.until(*OPEN))["output_file_id"])
            assert len({one["custom_id"] for one in half}) == len(half) >= done
        async with doing(nats):
            doc = await watched.until("completed")
    got = [one["custom_id"] for one in await lines_of(at, doc["output_file_id"])]
    assert (len(got), len(set(got))) == (500, 500)
    assert doc["request_counts"] == {"total": 500, "completed": 500, "failed": 0}
    assert len(seen) == 500, "no job ran twice"
    assert doc["error_file_id"] is None
    again = [one["id"] for one in (await at.client.get("/v1/batches")).json()["data"]]
    assert again == [batch]


async def test_a_cancelled_batch_keeps_what_was_done_and_its_jobs_are_cancelled(
    at: Edge, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchrun, "_FLUSH_S", 0.02)
    batch = await begin(at, await upload(at, [line(number) for number in range(300)]))
    watched = Watched(at, batch)
    worker = ScriptedWorker(at.made.bus, "half")
    async with worker, doing(nats, batch_window=4):
        await watched.until("in_progress", completed=1)
        got = await at.client.post(f"/v1/batches/{batch}/cancel")
        assert (got.status_code, got.json()["status"]) == (200, "cancelling")
        doc = await watched.until("cancelled", "completed")
    assert doc["status"] == "cancelled"
    done = await lines_of(at, doc["output_file_id"])
    assert 0 < len(done) == doc["request_counts"]["completed"] < 300
    assert doc["cancelled_at"] >= doc["cancelling_at"] >= doc["created_at"]
    again = await at.client.post(f"/v1/batches/{batch}/cancel")
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")


async def test_a_batch_that_waits_for_a_worker_is_cancelled_with_its_queued_jobs(at: Edge, nats: NatsServer) -> None:
    batch = await begin(at, await upload(at, [line(number) for number in range(20)]))
    async with doing(nats, batch_window=8):
        async with asyncio.timeout(60):
            while await at.made.queued() < 8:
                await at.client.get("/hello")
        await at.client.post(f"/v1/batches/{batch}/cancel")
        doc = await Watched(at, batch).until("cancelled")
    assert (doc["request_counts"]["completed"], doc["output_file_id"]) == (0, None)
    stored = await at.made.bus.list_latest(Stream.STATE, [names.RECORDS])
    assert len(stored) == 8
    assert {json.loads(one.headers["Sb-Record"])["state"] for one in stored} == {"cancelled"}


async def test_a_paused_batch_begins_no_lines_until_it_goes_on(
    at: Edge, nats: NatsServer, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchrun, "_FLUSH_S", 0.02)
    batch = await begin(at, await upload(at, [line(number) for number in range(400)]))
    subject = names.key(Bucket.BATCHES, outboundnames.batch_key(mine.stored.account_id, batch))

    async def ask(wanted: str) -> None:
        while True:
            found = await at.made.bus.leader_get(Bucket.BATCHES.stream, subject)
            assert found is not None
            doc = replace(decode(Batch, found.data), asked=wanted)
            with suppress(StaleRevision):
                await at.made.bus.write(subject, encode(doc), expect=found.seq)
                return

    await ask("pause")
    async with ScriptedWorker(at.made.bus, "half"), doing(nats, batch_window=4):
        other = await begin(at, await upload(at, [line(1)]))
        await Watched(at, other).until("completed")
        assert (await Watched(at, batch).until("validating"))["request_counts"]["total"] == 0
        await ask("run")
        await Watched(at, batch).until("in_progress", completed=1)
        await ask("pause")
        paused = await Watched(at, batch).until("in_progress", completed=1)
        await ask("run")
        doc = await Watched(at, batch).until("completed")
    assert paused["request_counts"]["completed"] < 400
    assert doc["request_counts"]["completed"] == 400


async def test_what_cannot_be_done_fails_or_expires_and_says_why(at: Edge, nats: NatsServer, mine: Key) -> None:
    file_id = await upload(at, [line(1, url="/v1/models/nobody:predict")])
    unknown = await begin(at, file_id, endpoint="/v1/models/nobody:predict")
    async with doing(nats):
        doc = await Watched(at, unknown).until("completed")
        (failed,) = await lines_of(at, doc["error_file_id"])
        assert (failed["response"]["status_code"], failed["error"]["code"]) == (404, "not_found")
        removed = await begin(at, file_id)
        assert (await Watched(at, removed).until("completed", "failed"))["request_counts"]["failed"] == 1
        late = await begin(at, await upload(at, [line(1)]), completion_window="1s")
        doc = await Watched(at, late).until("expired")
        assert doc["request_counts"] == {"total": 1, "completed": 0, "failed": 0}
    revoked = key(account_id=mine.stored.account_id)
    await at.made.publish(revoked)
    ended = await at.client.post(
        "/v1/batches",
        json={"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"},
        headers={"Authorization": f"Bearer {revoked.text}"},
    )
    await at.made.publish(revoked._replace(stored=replace(revoked.stored, revoked_at=1.0)))
    async with doing(nats):
        doc = await Watched(at, ended.json()["id"]).until("failed")
    assert "revoked" in doc["errors"]["data"][0]["message"]
    gone = await begin(at, file_id)
    assert (await at.client.delete(f"/v1/files/{file_id}")).json() == {"id": file_id, "object": "file", "deleted": True}
    async with doing(nats):
        doc = await Watched(at, gone).until("failed")
    assert "no such file" in doc["errors"]["data"][0]["message"]


async def test_a_batch_fails_where_its_account_s_files_take_more_than_they_may(
    nats: NatsServer, tmp_path: Path, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchrun, "_FLUSH_S", 0.02)
    most = 60_000
    async with edge(nats, tmp_path, mine, max_files_bytes=most) as at, ScriptedWorker(at.made.bus, "half"):
        file_id = await upload(at, [line(number) for number in range(400)])
        size = (await at.client.get(f"/v1/files/{file_id}")).json()["bytes"]
        async with doing(nats, batch_window=4, max_files_bytes=most):
            doc = await Watched(at, await begin(at, file_id)).until("failed", "completed")
            assert (doc["status"], str(most) in doc["errors"]["data"][0]["message"]) == ("failed", True)
            written = await lines_of(at, doc["output_file_id"])
            assert 0 < len(written) == doc["request_counts"]["completed"] < 400
            output = (await at.client.get(f"/v1/files/{doc['output_file_id']}")).json()
            assert most < size + output["bytes"] < most + 20_000
            again = await Watched(at, await begin(at, file_id)).until("failed", "completed")
            assert (again["status"], again["output_file_id"]) == ("failed", None)
            assert (await at.client.delete(f"/v1/files/{output['id']}")).json()["deleted"] is True
            left = await upload(at, [line(399)])
            assert (await Watched(at, await begin(at, left)).until("failed", "completed"))["status"] == "completed"


async def test_one_idempotency_key_makes_one_batch(at: Edge) -> None:
    file_id, other_file = await upload(at, [line(1)]), await upload(at, [line(2)])
    body = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
    once = {"Idempotency-Key": "nightly 17"}
    got = await asyncio.gather(*(at.client.post("/v1/batches", json=body, headers=once) for _ in range(5)))
    assert len({one.json()["id"] for one in got}) == 1
    assert sorted(one.headers.get("Idempotent-Replayed", "") for one in got) == ["", *["true"] * 4]
    assert len((await at.client.get("/v1/batches")).json()["data"]) == 1
    for change in ({"metadata": {"a": "b"}}, {"completion_window": "1h"}, {"input_file_id": other_file}):
        wrong = await at.client.post("/v1/batches", json={**body, **change}, headers=once)
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert (await at.client.post("/v1/batches", json=body, headers={"Idempotency-Key": ""})).status_code == 400
    await at.client.delete(f"/v1/files/{file_id}")
    again = await at.client.post("/v1/batches", json=body, headers=once)
    assert (again.status_code, again.json()["id"]) == (200, got[0].json()["id"])
    other = key()
    await at.made.publish(other)
    theirs = await at.client.post("/v1/batches", json=body, headers={**once, "Authorization": f"Bearer {other.text}"})
    assert theirs.status_code == 404


async def test_files_and_batches_are_their_accounts_alone(at: Edge, mine: Key) -> None:
    file_id = await upload(at, [line(1)])
    batch = await begin(at, file_id)
    other, reader = key(), key(scopes=("jobs:read",), account_id=mine.stored.account_id)
    await at.made.publish(other, reader)
    theirs = {"Authorization": f"Bearer {other.text}"}
    for method, path in (
        ("GET", f"/v1/files/{file_id}"),
        ("GET", f"/v1/files/{file_id}/content"),
        ("DELETE", f"/v1/files/{file_id}"),
        ("GET", f"/v1/batches/{batch}"),
        ("POST", f"/v1/batches/{batch}/cancel"),
        ("GET", "/v1/files/*"),
    ):
        got = await at.client.request(method, path, headers=theirs)
        assert (got.status_code, got.json()["error"]["code"]) == (404, "not_found"), path
    body = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
    assert (await at.client.post("/v1/batches", json=body, headers=theirs)).status_code == 404
    assert (await at.client.get("/v1/files", headers=theirs)).json()["data"] == []
    mine_only = {"Authorization": f"Bearer {reader.text}"}
    assert (await at.client.post("/v1/batches", json=body, headers=mine_only)).status_code == 403
    assert (await at.client.get(f"/v1/files/{file_id}", headers=mine_only)).status_code == 200


async def test_a_file_that_a_batch_still_writes_is_not_deleted(at: Edge, nats: NatsServer) -> None:
    batch = await begin(at, await upload(at, ["{no json", line(0)]))
    async with doing(nats):
        watched = Watched(at, batch)
        async with asyncio.timeout(60):
            doc = await watched.until(*OPEN)
            while doc["error_file_id"] is None:
                doc = await watched.until(*OPEN)
        got = await at.client.delete(f"/v1/files/{doc['error_file_id']}")
        assert (got.status_code, got.json()["error"]["code"]) == (409, "conflict")
        await at.client.post(f"/v1/batches/{batch}/cancel")
        doc = await watched.until("cancelled")
    assert len(await lines_of(at, doc["error_file_id"])) == 1
    assert (await at.client.delete(f"/v1/files/{doc['error_file_id']}")).status_code == 200


@pytest.mark.parametrize("limit", ["000000001" + "9" * 4400, "00000000199999", "0", "-1", "x"])
async def test_a_limit_that_is_none_is_refused(at: Edge, limit: str) -> None:
    for what in ("files", "batches"):
        assert (await at.client.get(f"/v1/{what}?limit={limit}")).status_code == 400


async def test_uploads_at_once_share_what_their_account_may_take(at: Edge) -> None:
    files = Files(at.made.bus, most_bytes=10)
    first, second = await files.upload("acme"), await files.upload("acme")
    await first.write(b"123456")
    with pytest.raises(LimitExceeded):
        await second.write(b"12345")
    second.abandon()
    await first.write(b"7890")
    assert (await first.finish("a", "batch")).size == 10
    await files.close()


async def test_an_upload_is_bounded_and_what_was_written_of_it_goes(
    nats: NatsServer, tmp_path: Path, mine: Key
) -> None:
    async with edge(nats, tmp_path, mine, max_files_bytes=2_000_000) as at:
        rows = [line(number) for number in range(1000)]
        await upload(at, rows)

        async def large() -> AsyncIterator[bytes]:
            yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
            for _ in range(40):
                yield b"x" * 65_536

        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        got = await at.client.post("/v1/files", content=large(), headers=headers)
        assert (got.status_code, got.json()["error"]["type"]) == (429, "rate_limit_error")
        cut = await at.client.post("/v1/files", content=b"--b\r\n", headers=headers)
        assert (cut.status_code, cut.json()["error"]["type"]) == (400, "invalid_request_error")
        plain = await at.client.post("/v1/files", json={})
        assert plain.status_code == 400
        await at.made.gateway._files.close()
        info = await at.made.bus.request_json(
            f"$JS.API.STREAM.INFO.{Stream.FILES}", {"subjects_filter": outboundnames.file_chunks()}
        )
        assert len({subject.split(".")[2] for subject in info["state"]["subjects"]}) == 1


async def begin_upload(at: Edge, size: int) -> str:
    body = {"filename": "in.jsonl", "purpose": "batch", "bytes": size, "mime_type": "application/jsonl"}
    got = await at.client.post("/v1/uploads", json=body)
    assert got.status_code == 200, got.text
    return str(got.json()["id"])


async def send_part(at: Edge, upload_id: str, data: bytes) -> str:
    got = await at.client.post(f"/v1/uploads/{upload_id}/parts", files={"data": data})
    assert got.status_code == 200, got.text
    assert (got.json()["object"], got.json()["upload_id"]) == ("upload.part", upload_id)
    return str(got.json()["id"])


async def chunks_of(at: Edge, file_id: str) -> set[str]:
    info = await at.made.bus.request_json(
        f"$JS.API.STREAM.INFO.{Stream.FILES}", {"subjects_filter": outboundnames.file_chunks(file_id=file_id)}
    )
    return {subject.rpartition(".")[2] for subject in info["state"].get("subjects") or {}}


async def test_a_file_comes_in_parts_in_the_order_that_is_given(at: Edge, nats: NatsServer) -> None:
    data = "\n".join(json.dumps(line(number)) for number in range(12_000)).encode()
    third = len(data) // 3 + 7
    upload_id = await begin_upload(at, len(data))
    file_id = upload_id.replace("upload_", "file-")
    pieces = [data[start : start + third] for start in range(0, len(data), third)]
    sent = [send_part(at, upload_id, one) for one in (*reversed(pieces), pieces[0])]
    *backwards, _sent_twice = await asyncio.gather(*sent)
    wanted = {"part_ids": backwards[::-1], "md5": hashlib.md5(data, usedforsecurity=False).hexdigest()}
    path = f"/v1/uploads/{upload_id}/complete"
    for wrong in (
        {"part_ids": backwards[:2]},
        {**wanted, "part_ids": backwards},
        {"part_ids": [*backwards[:2], backwards[0]]},
        {"part_ids": ["part_0"]},
    ):
        assert (await at.client.post(path, json=wrong)).status_code == 400
    first, again = [(await at.client.post(path, json=wanted)).json() for _ in range(2)]
    assert (first["status"], first["file"]["id"], first["file"]["bytes"]) == ("completed", file_id, len(data))
    assert again == first
    late = await at.client.post(f"/v1/uploads/{upload_id}/parts", files={"data": b"x"})
    assert (late.status_code, "completed" in late.json()["error"]["message"]) == (400, True)
    await at.made.gateway._files.close()
    assert len(await chunks_of(at, file_id)) == 3 * (third // CHUNK_BYTES + 1) + 2
    assert (await at.client.get(f"/v1/files/{file_id}/content")).content == data
    assert [one["id"] for one in (await at.client.get("/v1/files")).json()["data"]] == [file_id]
    async with doing(nats):
        batch = await begin(at, file_id)
        await at.client.post(f"/v1/batches/{batch}/cancel")
        assert (await Watched(at, batch).until("cancelled"))["request_counts"]["total"] == 12_000
    assert (await at.client.delete(f"/v1/files/{file_id}")).json()["deleted"] is True
    assert await chunks_of(at, file_id) == set()


async def test_an_upload_ends_and_what_came_of_it_goes(at: Edge, mine: Key) -> None:
    cancelled, expired, kept = [await begin_upload(at, 5) for _ in range(3)]
    for one in (cancelled, expired, kept):
        await send_part(at, one, b"12345")
    got = await at.client.post(f"/v1/uploads/{cancelled}/cancel")
    assert (got.status_code, got.json()["status"]) == (200, "cancelled")
    files = Files(at.made.bus)
    assert await Uploads(at.made.bus, files).sweep() == 0
    subject = outboundnames.file_upload(mine.stored.account_id, expired.replace("upload_", "file-"))
    stored = await at.made.bus.leader_get(Stream.FILES, subject)
    assert stored is not None
    old = replace(decode(FileUpload, stored.data), created_at=time.time() - 2 * OPEN_S)
    await at.made.bus.write(subject, encode(old), expect=stored.seq)
    refused = await at.client.post(f"/v1/uploads/{expired}/parts", files={"data": b"1"})
    assert (refused.status_code, "expired" in refused.json()["error"]["message"]) == (400, True)
    await at.made.gateway._files.close()
    assert await Uploads(at.made.bus, files).sweep() == 1
    for one, state in ((cancelled, "cancelled"), (expired, "expired")):
        assert await chunks_of(at, one.replace("upload_", "file-")) == {"upload"}
        assert (await at.client.post(f"/v1/uploads/{one}/cancel")).json()["status"] == state
        assert (await at.client.post(f"/v1/uploads/{one}/parts", files={"data": b"1"})).status_code == 400
    assert len(await chunks_of(at, kept.replace("upload_", "file-"))) == 2
    other = key()
    await at.made.publish(other)
    theirs = {"Authorization": f"Bearer {other.text}"}
    for act in ("cancel", "parts", "complete"):
        fields: dict[str, Any] = {"files": {"data": b"1"}} if act == "parts" else {"json": {"part_ids": []}}
        assert (await at.client.post(f"/v1/uploads/{kept}/{act}", headers=theirs, **fields)).status_code == 404


async def test_uploads_count_with_all_that_they_will_be(nats: NatsServer, tmp_path: Path, mine: Key) -> None:
    async with edge(nats, tmp_path, mine, max_files_bytes=1000) as at:
        first = await begin_upload(at, 600)
        body = {"filename": "x", "purpose": "batch", "bytes": 500, "mime_type": "text/plain"}
        assert (await at.client.post("/v1/uploads", json=body)).status_code == 429
        assert (await at.client.post("/v1/uploads", json={**body, "bytes": FILE_BYTES + 1})).status_code == 413
        assert (await at.client.post("/v1/uploads", json={**body, "bytes": 0})).status_code == 400
        lost = await at.client.post(f"/v1/uploads/{first}/parts", files={"data": b"x" * 1001})
        assert lost.status_code == 429
        part = await send_part(at, first, b"x" * 600)
        done = await at.client.post(f"/v1/uploads/{first}/complete", json={"part_ids": [part]})
        assert done.json()["file"]["bytes"] == 600
        assert (await at.client.post("/v1/uploads", json={**body, "bytes": 400})).status_code == 200


async def test_the_programs_own_nats_users_may_do_all_that_a_batch_needs(tmp_path: Path, mine: Key) -> None:
    users = {"gateway": "g", "admin": "a", "outbound": "o"}
    async with NatsServer(tmp_path / "nats", users=users) as server:
        admin = Wire(nats_url=server.url, nats_user="admin", nats_password="a")
        bus = await Bus.connect(admin, role="admin")
        await topology.apply(bus)
        await bus.close()
        async with (
            edge(server, tmp_path, mine, admin_wire=admin, nats_user="gateway", nats_password="g") as at,
            doing(server, nats_user="outbound", nats_password="o"),
        ):
            await at.made.publish(model(batching=Batching(rows_independent=True)))
            rows = [line(number) for number in range(4)]
            file_id = await upload(at, [*rows, line(4, body={"instances": [1.0] * 150_000})])
            waiting = await begin(at, file_id)
            async with asyncio.timeout(60):
                while await at.made.queued() < 5:
                    await at.client.get("/hello")
            await at.client.post(f"/v1/batches/{waiting}/cancel")
            assert (await Watched(at, waiting).until("cancelled"))["request_counts"]["total"] == 5
            async with ScriptedWorker(at.made.bus, "half"):
                doc = await Watched(at, await begin(at, file_id)).until("completed")
            assert doc["request_counts"] == {"total": 5, "completed": 4, "failed": 1}
            (failed,) = await lines_of(at, doc["error_file_id"])
            assert (failed["custom_id"], failed["error"]["code"]) == ("line-4", "result_too_large")
            upload_id = await begin_upload(at, 1)
            part = await send_part(at, upload_id, b"x")
            made = await at.client.post(f"/v1/uploads/{upload_id}/complete", json={"part_ids": [part]})
            given_up = await begin_upload(at, 1)
            assert (await at.client.post(f"/v1/uploads/{given_up}/cancel")).json()["status"] == "cancelled"
            outbound = await Bus.connect(
                Wire(nats_url=server.url, nats_user="outbound", nats_password="o"), role="outbound"
            )
            late = Uploads(outbound, Files(outbound), wall=lambda: time.time() + 2 * OPEN_S)
            await begin_upload(at, 1)
            assert await late.sweep() == 1
            await outbound.close()
            for one in (file_id, made.json()["file"]["id"], doc["output_file_id"], doc["error_file_id"]):
                assert (await at.client.delete(f"/v1/files/{one}")).json()["deleted"] is True
            assert (await at.client.get("/v1/files")).json()["data"] == []


async def test_each_line_comes_once_though_the_process_is_killed(tmp_path: Path, mine: Key) -> None:
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server:
        admin = Wire(nats_url=server.url, nats_user="admin", nats_password=PASSWORDS["admin"])
        bus = await Bus.connect(admin, role="admin")
        await topology.apply(bus)
        await bus.close()
        login = {"nats_user": "gateway", "nats_password": PASSWORDS["gateway"]}
        async with edge(server, tmp_path, mine, admin_wire=admin, **login) as at:
            batch = await begin(at, await upload(at, [line(number) for number in range(2000)]))
            watched = Watched(at, batch)
            async with ScriptedWorker(at.made.bus, "half"):
                for done in (1, 500, 1000):
                    with copy(server, tmp_path):
                        assert (await watched.until(*OPEN, "completed", completed=done))["status"] != "completed"
                with copy(server, tmp_path):
                    doc = await watched.until("completed")
            got = [one["custom_id"] for one in await lines_of(at, doc["output_file_id"])]
    assert (len(got), len(set(got)), doc["request_counts"]["completed"]) == (2000, 2000, 2000)
