"""Results of jobs by themselves, waits for jobs that others submitted, and what need not be sent again."""

import asyncio
import io
import json
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from gateway_plugin.codec.oip.request import HEADER
from gateway_plugin.service.waiting import End
from gateway_plugin.upstream.server import HttpServer
from signalbox.wire import jobids, names
from signalbox.wire.messages import ErrorInfo
from signalbox.wire.tensors import Tensor
from tests.rigs.gateway import Key, Rig, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

BODY = {"model": "half", "input": {"x": [1.0, 2.0, 5.0]}}
Y = [2.5, 3.0, 4.5]


class Edge(NamedTuple):
    """A plugin with its edge, and a client of that with a key."""

    made: Rig
    client: httpx.AsyncClient

    async def submit(self, **fields: Any) -> str:
        got = await self.client.post("/v1/jobs", json={**BODY, **fields})
        assert got.status_code == 202, got.text
        return str(got.headers["Location"])

    async def result(self, job: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"{job}/result", headers={n.replace("_", "-"): v for n, v in headers.items()})


@asynccontextmanager
async def edge(nats: NatsServer, folder: Path, mine: Key, **fields: Any) -> AsyncIterator[Edge]:
    """fields: settings of the plugin."""
    async with rig(nats.url, folder, **fields) as made:
        await made.publish(mine, model())
        server = await HttpServer.start(made.gateway.http_upstream(is_front=True), listen="127.0.0.1:0")
        try:
            headers = {"Authorization": f"Bearer {mine.text}"}
            async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60, headers=headers) as client:
                yield Edge(made, client)
        finally:
            made.gateway.stop_waiting()
            await server.close(1)


@pytest.fixture
async def at(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge(nats, tmp_path, key()) as made:
        yield made


async def test_a_result_is_json_or_binary_tensors_or_arrays_of_numpy(at: Edge) -> None:
    async with ScriptedWorker(at.made.bus, "half"):
        job = await at.submit()
        text = await at.result(job, Prefer="wait=60")
    whole = await at.client.get(job)
    assert (text.json(), text.headers["Content-Type"]) == (whole.json()["result"], "application/json")
    assert text.headers["Preference-Applied"] == "wait=60"
    assert whole.json()["urls"]["result"] == f"{job}/result"
    octets = await at.result(job, Accept="application/octet-stream")
    size = int(octets.headers[HEADER])
    assert json.loads(octets.content[:size])["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}
    ]
    assert struct.unpack("<3f", octets.content[size:]) == tuple(Y)
    for media in ("application/x-npz", "application/zip"):
        archive = await at.result(job, Accept=media)
        assert archive.headers["Content-Type"] == media
        assert np.load(io.BytesIO(archive.content), allow_pickle=False)["y"].tolist() == Y


async def test_a_large_result_is_an_archive_too(at: Edge) -> None:
    values = np.arange(400_000, dtype="<f4")
    large = lambda _: [Tensor("y", "float32", (400_000,), values.tobytes())]  # noqa: E731
    async with ScriptedWorker(at.made.bus, "half", large):
        archive = await at.result(await at.submit(), Accept="application/x-npz", Prefer="wait=60")
    assert (np.load(io.BytesIO(archive.content))["y"] == values).all()


async def test_a_job_without_a_result_says_why_and_what_to_do(at: Edge) -> None:
    job = await at.submit()
    waiting = await at.result(job)
    assert (waiting.status_code, waiting.json()["state"]) == (409, "queued")
    assert "Prefer: wait" in waiting.json()["detail"]
    assert int(waiting.headers["Retry-After"]) >= 1
    await at.client.post(f"{job}/cancel")
    cancelled = await at.result(job)
    assert (cancelled.status_code, cancelled.json()["state"]) == (409, "cancelled")
    assert "as it was cancelled: Cancelled by its owner. Submit it again." in cancelled.json()["detail"]
    expired = await at.result(await at.submit(deadline_s=0.001))
    assert (expired.status_code, expired.json()["code"]) == (410, "expired")
    refusal = ErrorInfo(code="model_error", message="negative input")

    def refuse(_: Sequence[Tensor]) -> ErrorInfo:
        return refusal

    async with ScriptedWorker(at.made.bus, "half", refuse):
        failed = await at.result(await at.submit(), Prefer="wait=60")
    assert (failed.status_code, failed.json()["state"]) == (409, "failed")
    assert failed.json()["error"] == {"code": "model_error", "message": "negative input"}
    assert "negative input. Mend" in failed.json()["detail"]


async def test_a_result_is_its_owners_alone_and_needs_the_scope_to_read(at: Edge) -> None:
    other, submitter = key(), key(scopes=("jobs:submit",))
    await at.made.publish(other, submitter)
    async with ScriptedWorker(at.made.bus, "half"):
        job = await at.submit()
        assert (await at.result(job, Prefer="wait=60")).status_code == 200
    for who, status in ((other, 404), (submitter, 403)):
        got = await at.result(job, Authorization=f"Bearer {who.text}")
        assert got.status_code == status
        assert got.headers["Content-Type"] == "application/problem+json"
    assert (await at.client.delete(f"{job}/result")).headers["Allow"] == "GET, HEAD"


async def test_through_a_hook_a_result_is_json_and_bytes_are_refused_with_the_mend(
    nats: NatsServer, tmp_path: Path
) -> None:
    mine = key()
    async with edge(nats, tmp_path, mine) as at, ScriptedWorker(at.made.bus, "half"):
        job = await at.submit()
        got = await at.made.call("GET", f"{job}/result", key=mine, headers={"Prefer": "wait=60"})
        assert got.doc == {"outputs": Y}
        refused = await at.made.call("GET", f"{job}/result", key=mine, headers={"Accept": "application/x-npz"})
    assert (refused.status, refused.doc["code"]) == (501, "unimplemented")
    assert "upstream" in refused.doc["detail"]


async def test_a_read_waits_for_the_end_of_a_job_that_another_call_submitted(
    at: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters, followed = at.made.gateway._waiters, asyncio.Event()
    follow = waiters.follow

    async def told(job_id: str, timeout_s: float) -> End | None:
        followed.set()
        return await follow(job_id, timeout_s)

    monkeypatch.setattr(waiters, "follow", told)
    async with ScriptedWorker(at.made.bus, "half") as worker:
        worker.go.clear()
        job = await at.submit()
        await asyncio.wait_for(worker.claimed.wait(), 60)
        reads = [asyncio.create_task(at.client.get(job, headers={"Prefer": "wait=60"})) for _ in range(2)]
        await asyncio.wait_for(followed.wait(), 60)
        worker.go.set()
        for got in await asyncio.gather(*reads):
            assert (got.status_code, got.json()["state"]) == (200, "succeeded")
            assert got.headers["Preference-Applied"] == "wait=60"
    open_ = await at.client.get(await at.submit(), headers={"Prefer": "respond-async, wait=1"})
    assert (open_.json()["state"], open_.headers["Preference-Applied"]) == ("queued", "wait=1")
    assert "Retry-After" in open_.headers


async def test_what_a_caller_has_of_an_ended_job_is_not_sent_again(at: Edge) -> None:
    job = await at.submit()
    assert "ETag" not in (await at.client.get(job)).headers
    async with ScriptedWorker(at.made.bus, "half"):
        ended = await at.client.get(job, headers={"Prefer": "wait=60"})
    result = await at.result(job)
    assert result.headers["Vary"] == "Accept"
    for path, tag in ((job, ended.headers["ETag"]), (f"{job}/result", result.headers["ETag"])):
        again = await at.client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert (await at.client.get(path, headers={"If-None-Match": '"other"'})).status_code == 200
    octets = await at.result(job, Accept="application/octet-stream", If_None_Match=result.headers["ETag"])
    assert octets.status_code == 200, "another form is not what the caller has"


async def test_an_id_older_than_any_record_is_gone_for_everybody_and_a_newer_one_not_found(at: Edge) -> None:
    other = key()
    await at.made.publish(other)
    settings, now = at.made.gateway.settings, time.time()
    oldest = 7 * 86_400 + settings.records_kept_s
    for age_s, status, code in (
        (oldest + 60, 410, "gone"),
        (oldest - 60, 404, "not_found"),
        (-60, 404, "not_found"),
    ):
        for is_short_lived in (False, True):
            job = f"/v1/jobs/{jobids.new_job_id(now - age_s, 7, is_short_lived=is_short_lived)}"
            for who in ({}, {"Authorization": f"Bearer {other.text}"}):
                for method, path in (("GET", job), ("GET", f"{job}/result"), ("DELETE", job)):
                    got = await at.client.request(method, path, headers=who)
                    assert (got.status_code, got.json()["code"]) == (status, code), (method, age_s)


async def test_a_result_that_is_no_longer_stored_is_gone_while_its_job_is_known(at: Edge) -> None:
    large = Tensor("y", "float32", (100_000,), bytes(400_000))
    async with ScriptedWorker(at.made.bus, "half", lambda _: [large]):
        job = await at.submit()
        assert (await at.result(job, Prefer="wait=60")).status_code == 200
    await at.made.bus.request_json(f"$JS.API.STREAM.PURGE.{names.Stream.PAYLOADS}")
    for accept in ("application/json", "application/octet-stream"):
        gone = await at.result(job, Accept=accept)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")
        assert f"/v1/jobs/{gone.json()['job_id']}" == job
