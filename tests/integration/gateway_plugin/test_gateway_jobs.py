"""The job API: submit, read, cancel; and that a job is its owner's alone."""

import asyncio
import json
import math
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from signalbox.bus import table
from signalbox.jobs import deadletters, delivery, queues
from signalbox.jobs.records import Records
from signalbox.wire import jobids, names
from signalbox.wire.messages import DeadLetter, ErrorInfo, Job, decode
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket, Header, Stream
from signalbox.wire.scaling import Host, HostDevice, Measured
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Device, Residency, Run, Worker
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, holds, key, model, reached, rig
from tests.rigs.natsserver import NatsServer

WAIT = {"Prefer": "wait=60"}
BODY = {"model": "half", "input": {"x": [1.0, 2.0, 5.0]}}


@pytest.fixture
async def front(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(nats.url, tmp_path) as made:
        yield made


async def submit(front: Rig, mine: Key, **fields: object) -> Reply:
    got = await front.call("POST", "/v1/jobs", {**BODY, **fields}, key=mine)
    assert got.status == 202, got
    return got


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/predict"])
async def test_a_submitted_job_runs_and_its_result_is_fetched(front: Rig, mine: Key, path: str) -> None:
    async with ScriptedWorker(front.bus, "half") as worker:
        got = await front.call("POST", path, BODY, key=mine)
        assert got.status == 202
        assert got.doc["request_id"] == got.doc["id"] == got.headers["X-Signalbox-Job-Id"]
        await asyncio.wait_for(worker.finished.wait(), 60)
        done = await front.call("GET", got.headers["Location"], key=mine)
    assert done.doc["state"] == done.doc["phase"] == "succeeded"
    assert done.doc["result"] == {"outputs": [2.5, 3.0, 4.5]}
    assert done.doc["attempt"] == 1
    assert done.doc["created_at"].endswith("Z")


async def test_prefer_wait_answers_with_the_finished_job(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/jobs", BODY, key=mine, headers={"Prefer": "wait=10"})
    assert got.status == 200
    assert got.doc["result"] == {"outputs": [2.5, 3.0, 4.5]}
    assert got.headers["Preference-Applied"] == "wait=10"


async def test_a_wait_that_runs_out_is_202_and_the_job_goes_on(front: Rig, mine: Key) -> None:
    got = await front.call("POST", "/v1/jobs", BODY, key=mine, headers={"Prefer": "wait=0"})
    assert got.status == 202
    again = await front.call("GET", got.headers["Location"], key=mine)
    assert again.doc["state"] == "queued"


async def test_a_queued_job_says_where_it_stands_and_when_it_will_start(front: Rig, mine: Key) -> None:
    jobs = [await submit(front, mine) for _ in range(4)]
    lonely = jobs[0].doc
    assert lonely["phase"] == "waiting: no worker serves half"
    assert (lonely["position"], lonely["estimated_wait_s"]) == (None, None)
    await tell(front, presence())
    last = (await front.call("GET", jobs[3].headers["Location"], key=mine)).doc
    assert (last["phase"], last["position"]) == ("waiting: 3 jobs ahead", 3)
    assert last["estimated_wait_s"] == 0.06
    first = (await front.call("GET", jobs[0].headers["Location"], key=mine)).doc
    assert (first["phase"], first["position"]) == ("waiting: next in line", 0)
    assert first["estimated_wait_s"] is None, "nothing is before it"


async def test_without_a_worker_a_job_is_accepted_and_its_estimate_counts_the_start_of_one(
    front: Rig, mine: Key
) -> None:
    await tell_of_host(front)
    got = await submit(front, mine)
    told = (await front.call("GET", got.headers["Location"], key=mine)).doc
    for doc in (got.doc, told):
        assert doc["phase"] == "waiting: no worker serves half yet: one is being started"
        assert (doc["position"], doc["estimated_wait_s"]) == (0, 8.0)
    await tell_of_host(front, replicas=0)
    refused = await front.call("POST", "/v1/jobs", BODY, key=mine)
    assert (refused.status, refused.doc["code"]) == (503, "not_serving")
    assert "scaled to 0" in refused.doc["detail"]


async def test_while_a_host_can_start_a_worker_a_model_is_available_and_without_one_it_is_not(
    front: Rig, mine: Key
) -> None:
    path = "/v1/models/half"
    (without,) = (await front.call("GET", path, key=mine)).doc["model_version_status"]
    assert (without["state"], without["status"]["error_message"]) == ("START", "no worker serves half")
    await tell_of_host(front)
    (told,) = (await front.call("GET", path, key=mine)).doc["model_version_status"]
    assert (told["state"], told["status"]["error_code"]) == ("AVAILABLE", "OK")
    ready = await front.call("GET", "/v2/models/half/ready", key=mine)
    assert ready.status == 200


async def tell_of_host(front: Rig, *, replicas: int = 1) -> None:
    """A host with a device and no worker, whose workers have started in 6 s and loaded the model in 2 s."""
    await front.publish(model(replicas=replicas))
    device = HostDevice(device=Device(id="CPU-h-0", kind="cpu", name="cpu"), class_="cpu")
    measured = Measured(start_s=6.0, load_s={"half": 2.0})
    host = Host(id="h", host="h", devices=(device,), measured=measured)
    revision = await table.put(front.bus, Bucket.HOSTS, "h", host, ttl_s=60)
    await reached(front.gateway._hosts, "h", revision)


async def test_where_many_are_queued_ids_tell_the_beginning_of_a_longer_slot(
    front: Rig, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobids, "MANY_QUEUED", 1)
    first = jobids.slot_of((await submit(front, mine)).doc["id"])
    await submit(front, mine)
    await front.gateway._clock._measure()
    assert front.gateway._clock.queued == 2
    for headers in ({}, {"Idempotency-Key": "a"}):
        got = await front.call("POST", "/v1/jobs", BODY, key=mine, headers=headers)
        began_at = jobids.time_of_slot(jobids.slot_of(got.doc["id"]))
        assert jobids.time_of_slot(first) - 4.096 < began_at <= time.time()
        assert round(began_at * 1000) % 4096 == 0


async def test_a_job_behind_another_model_s_run_is_told_of_that_run(front: Rig, mine: Key) -> None:
    taken = asyncio.Event()
    found = await delivery.find(front.bus, "half", "mid", 0)
    puller = await front.bus.pull(found.name, lambda _: taken.set())
    puller.ask(1)
    job = (await submit(front, mine)).headers["Location"]
    await asyncio.wait_for(taken.wait(), 60)
    since = time.time() - 2
    busy = Run(activity="computing", model="slow", version=1, since=since, expected_s=14.0)
    await tell(front, presence(run=busy, waiting={"half": 1}))
    got = await front.call("GET", job, key=mine)
    assert (got.doc["state"], got.doc["position"]) == ("queued", None)
    assert got.doc["phase"] == "waiting: a worker has it, behind a run of slow"
    assert 8 < got.doc["estimated_wait_s"] < 13
    assert int(got.headers["Retry-After"]) == math.ceil(got.doc["estimated_wait_s"])
    assert got.doc["is_longer_than_usual"] is False
    late = Run(activity="computing", model="slow", version=1, since=time.time() - 20, expected_s=14.0)
    await tell(front, presence(run=late, waiting={"half": 1}))
    got = await front.call("GET", job, key=mine)
    assert got.doc["phase"] == "waiting: a worker has it, behind a run of slow that takes longer than usual"
    assert (got.doc["estimated_wait_s"], got.doc["is_longer_than_usual"]) == (None, True)
    await puller.close()


async def test_a_queue_is_asked_for_under_the_fleets_generation_of_consumers(
    front: Rig, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_FRESH_S", 0.0)  # what was known at the job's acceptance
    await tell(front, presence(generation=2))
    taken = asyncio.Event()
    found = await delivery.find(front.bus, "half", "mid", 2)
    puller = await front.bus.pull(found.name, lambda _: taken.set())
    puller.ask(1)
    job = (await submit(front, mine)).headers["Location"]
    await asyncio.wait_for(taken.wait(), 60)
    got = await front.call("GET", job, key=mine)
    assert (got.doc["state"], got.doc["position"]) == ("queued", None), "a worker has it"
    await puller.close()
    made = await front.bus.listed(f"$JS.API.CONSUMER.NAMES.{Stream.JOBS}", "consumers")
    assert made == [found.name], "it makes none"


async def test_a_job_whose_version_is_being_fetched_is_told_how_far_that_is_and_when_it_starts(
    front: Rig, mine: Key
) -> None:
    job = (await submit(front, mine)).headers["Location"]
    coming = Residency(
        model="half",
        version=1,
        state="fetching",
        fetched_bytes=41_000_000,
        fetch_bytes=100_000_000,
        fetch_rate=10_000_000.0,
    )
    await tell(front, presence(models=(coming,), load_s={"half": 2.0}))
    got = await front.call("GET", job, key=mine)
    assert got.doc["phase"] == "waiting: version 1 of half is being fetched: 41 of 100 MB"
    assert got.doc["estimated_wait_s"] == pytest.approx(5.9 + 2.0, abs=0.011)
    await tell(front, presence(models=(replace(coming, error="The store is away."),), load_s={"half": 2.0}))
    got = await front.call("GET", job, key=mine)
    assert got.doc["phase"] == "waiting: version 1 of half cannot be fetched now: the store is away"
    assert got.doc["estimated_wait_s"] is None


def presence(**fields: Any) -> Worker:
    """A worker that holds its device, has ``half`` in memory and does fifty of it a second."""
    known = {
        "id": "w1",
        "boot": "b",
        "host": "h",
        "pid": 1,
        "state": "ready",
        "token": 1,
        "device": Device(id="CPU-test-0", kind="cpu", name="virtual"),
        "rates": {"half": 50.0},
        "models": (Residency(model="half", version=1, state="ready"),),
        "started_at": time.time(),
        "beat_at": time.time(),
    }
    return Worker(**{**known, **fields})


async def tell(front: Rig, worker: Worker) -> None:
    """Presence as the worker writes it, and as the plugin has read it."""
    name = names.token(worker.id)
    revision = await table.put(front.bus, Bucket.WORKERS, name, worker, ttl_s=60)
    await reached(front.gateway._workers, name, revision)


async def test_a_paused_model_says_so(front: Rig, mine: Key) -> None:
    revision = await table.put(front.bus, Bucket.DESIRED, "model.half", Desired(is_paused=True))
    await reached(front.gateway._desired, "model.half", revision)
    async with ScriptedWorker(front.bus, "half") as worker:
        worker.go.clear()
        revision = front.gateway._workers.revision("w1")
        await reached(front.gateway._workers, "w1", max(1, revision))
        got = await submit(front, mine)
    assert got.doc["phase"] == "waiting: half is paused by an operator"


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"is_enabled": False}, "ready", "the model half is disabled"),
        ({"replicas": 0}, "ready", "the model half has no replicas"),
        ({}, "failed", "version 1 of half does not load"),
    ],
)
async def test_a_job_that_no_worker_can_begin_says_why(
    front: Rig, mine: Key, changes: dict[str, Any], state: str, words: str
) -> None:
    got = await submit(front, mine)
    await tell(front, presence(models=(Residency(model="half", version=1, state=state),)))
    await front.publish(model(**changes), mine)
    found = await front.call("GET", got.headers["Location"], key=mine)
    assert found.doc["phase"] == f"waiting: {words}"


async def test_a_running_job_whose_worker_is_gone_says_so(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half") as worker:
        worker.go.clear()
        got = await submit(front, mine)
        await asyncio.wait_for(worker.claimed.wait(), 60)
        await reached(front.gateway._workers, "w1", 1)
        here = await front.call("GET", got.headers["Location"], key=mine)
    assert (here.doc["state"], here.doc["phase"]) == ("running", "running, attempt 1")
    assert "unknown" not in open_parts(here)
    await until_gone(front, "w1")
    gone = await front.call("GET", got.headers["Location"], key=mine)
    assert "unknown" in open_parts(gone), "its time goes on, and nobody knows where"
    assert gone.doc["state"] == "running"
    assert gone.doc["phase"].startswith("running, attempt 1: its worker is gone")
    await tell(front, presence(token=99))
    other = await front.call("GET", got.headers["Location"], key=mine)
    assert "its worker is gone" in other.doc["phase"], "it is there, under another lease"


def open_parts(got: Reply) -> dict[str, float]:
    return {part["part"]: part["ms"] for part in got.doc["attempts"][-1]["parts"]}


async def until_gone(front: Rig, worker: str) -> None:
    """Returns when the plugin knows that a worker's presence has ended."""
    left = asyncio.Event()
    front.gateway._workers.on_change(lambda *_: left.set())
    while front.gateway._workers.get(worker) is not None:
        left.clear()
        await asyncio.wait_for(left.wait(), 60)


async def test_a_failed_job_shows_its_error(front: Rig, mine: Key) -> None:
    refusal = ErrorInfo(code="model_error", message="negative input")
    async with ScriptedWorker(front.bus, "half", lambda _: refusal) as worker:
        got = await submit(front, mine)
        await asyncio.wait_for(worker.finished.wait(), 60)
        done = await front.call("GET", got.headers["Location"], key=mine)
    assert (done.status, done.doc["state"]) == (200, "failed")
    assert done.doc["error"] == {"code": "model_error", "message": "negative input"}
    assert "result" not in done.doc


async def test_a_redriven_job_is_its_owners_and_names_the_old_one(front: Rig, mine: Key) -> None:
    old = (await submit(front, mine)).doc["id"]
    queued = await Records(front.bus).queued(old)
    assert queued is not None
    why = DeadLetter(error=ErrorInfo(code="poison", message="It was run 3 times alone."))
    await deadletters.keep(front.bus, decode(Job, queued.headers[Header.JOB]), queued.data, why)
    new = (await deadletters.redrive(front.bus, old)).job_id
    shown = await front.call("GET", f"/v1/jobs/{new}", key=mine)
    assert shown.status == 200
    assert shown.doc["redrive_of"] == old
    assert "redrive_of" not in (await front.call("GET", f"/v1/jobs/{old}", key=mine)).doc


async def test_a_queued_job_is_cancelled_at_once_and_never_runs(front: Rig, mine: Key) -> None:
    got = await submit(front, mine)
    cancelled = await front.call("POST", f"{got.headers['Location']}/cancel", key=mine)
    again = await front.call("POST", f"{got.headers['Location']}/cancel", key=mine)
    assert (cancelled.status, cancelled.doc["state"]) == (200, "cancelled")
    assert (again.status, again.doc["state"]) == (200, "cancelled")
    second = await submit(front, mine)
    async with ScriptedWorker(front.bus, "half") as worker:
        await asyncio.wait_for(worker.finished.wait(), 60)
        done = await front.call("GET", second.headers["Location"], key=mine)
        first = await front.call("GET", got.headers["Location"], key=mine)
    assert done.doc["state"] == "succeeded"
    assert (first.doc["state"], first.doc["attempt"]) == ("cancelled", 0)


async def test_a_running_job_is_asked_to_stop_and_then_is_cancelled(front: Rig, mine: Key) -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()
    listening = await front.bus.subscribe("cancel.*", lambda m: asked.put_nowait(m.subject))
    async with ScriptedWorker(front.bus, "half") as worker:
        worker.go.clear()
        got = await submit(front, mine)
        await asyncio.wait_for(worker.claimed.wait(), 60)
        stopping = await front.call("POST", f"{got.headers['Location']}/cancel", key=mine)
        assert (stopping.status, stopping.doc["phase"]) == (202, "being cancelled")
        assert await asyncio.wait_for(asked.get(), 60) == f"cancel.{got.doc['id']}"
        worker.go.set()
        await asyncio.wait_for(worker.finished.wait(), 60)
        done = await front.call("GET", got.headers["Location"], key=mine)
    assert done.doc["state"] == "cancelled"
    await listening.close()


async def test_a_finished_job_cannot_be_cancelled(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half") as worker:
        got = await submit(front, mine)
        await asyncio.wait_for(worker.finished.wait(), 60)
        late = await front.call("POST", f"{got.headers['Location']}/cancel", key=mine)
    assert (late.status, late.doc["code"], late.doc["state"]) == (409, "conflict", "succeeded")


async def test_a_job_whose_deadline_passed_is_410_also_without_workers(front: Rig, mine: Key) -> None:
    got = await submit(front, mine, deadline_s=0.001)
    expired = await front.call("GET", got.headers["Location"], key=mine)
    assert expired.status == 410
    assert expired.headers["Content-Type"] == "application/problem+json"
    assert (expired.doc["code"], expired.doc["job_id"]) == ("expired", got.doc["id"])


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_foreign_job_looks_exactly_like_an_unknown_one(front: Rig, mine: Key, method: str) -> None:
    stranger = key()
    await front.publish(stranger)
    queued = await submit(front, mine)
    async with ScriptedWorker(front.bus, "half") as worker:
        finished = await submit(front, mine)
        await asyncio.wait_for(worker.finished.wait(), 60)
    paths = [
        queued.headers["Location"],
        finished.headers["Location"],
        f"/v1/jobs/{uuid.uuid4()}",
        "/v1/jobs/nonsense",
        "/v1/jobs/%2e%2e",
    ]
    replies = [await front.call(method, path, key=stranger) for path in paths]
    assert {reply.status for reply in replies} == {404}
    assert len({reply.body for reply in replies}) == 1
    assert len({tuple(sorted(reply.headers.items())) for reply in replies}) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"priority": "urgent"}, '"priority" must be one of hi, mid, lo.'),
        ({"deadline_s": -1}, '"deadline_s"'),
        ({"deadline_s": True}, '"deadline_s"'),
        ({"version": "1"}, '"version"'),
        ({"version": 1, "label": "stable"}, "not both"),
        ({"model": 3}, '"model"'),
        ({"input": [1.0]}, '"input" must be an object'),
    ],
)
async def test_a_job_s_fields_are_checked(front: Rig, mine: Key, fields: dict[str, object], words: str) -> None:
    got = await front.call("POST", "/v1/jobs", {**BODY, **fields}, key=mine)
    assert got.status == 400
    assert words in got.doc["detail"]


async def test_priority_and_instances_travel_with_the_job(front: Rig, mine: Key) -> None:
    body = {"model": "half", "instances": [4.0], "priority": "hi", "version": 1}
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/jobs", body, key=mine, headers={"Prefer": "wait=5"})
    assert got.doc["priority"] == "hi"
    assert got.doc["result"] == {"predictions": [4.0]}


async def test_a_large_job_names_its_model_and_is_decoded_elsewhere(front: Rig, mine: Key) -> None:
    values = [float(n) for n in range(50_000)]
    body = {"model": "half", "input": {"x": values}}
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/jobs", body, key=mine, headers={"Prefer": "wait=20"})
    assert got.status == 200
    assert got.doc["result"]["outputs"][-1] == values[-1] / 2 + 2


@pytest.mark.parametrize("count", [1, 20_000])
async def test_numbers_that_are_none_are_strings_in_a_job_and_tokens_in_a_prediction(
    front: Rig, mine: Key, count: int
) -> None:
    """A browser reads no bare NaN; TensorFlow Serving's clients read no other."""
    odd = [math.nan, math.inf, -math.inf, 0.2] * count
    named = ["NaN", "Infinity", "-Infinity", 2.1] * count
    async with ScriptedWorker(front.bus, "half"):
        got = await front.call("POST", "/v1/jobs", {"model": "half", "input": {"x": odd}}, key=mine, headers=WAIT)
        later = await front.call(
            "POST", "/v1/models/half:predict", {"instances": odd}, key=mine, headers={"Idempotency-Key": "once"}
        )
        read = await front.call("GET", f"/v1/jobs/{later.headers['X-Signalbox-Job-Id']}", key=mine)
    assert json.loads(got.body, parse_constant=never)["result"] == {"outputs": named}
    assert json.loads(read.body, parse_constant=never)["result"] == {"predictions": named}
    assert later.body.startswith(b'{"predictions":[NaN,Infinity,-Infinity,2.1')


def never(token: str) -> None:
    raise AssertionError(f"{token} is no JSON")


async def test_models_are_listed_with_status_and_metadata(front: Rig, mine: Key) -> None:
    listed = await front.call("GET", "/v1/models", key=mine)
    assert listed.doc["models"] == ["half"]
    away = await front.call("GET", "/v1/models/half", key=mine)
    assert away.doc["model_version_status"][0]["state"] == "START"
    async with ScriptedWorker(front.bus, "half"):
        revision = front.gateway._workers.revision("w1")
        await reached(front.gateway._workers, "w1", max(1, revision))
        status = await front.call("GET", "/V1/Models/half/versions/1", key=mine)
    assert status.doc == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    missing = await front.call("GET", "/v1/models/half/versions/99", key=mine)
    assert (missing.status, missing.doc["error"]) == (404, "Could not find version 99 of model half")
    metadata = await front.call("GET", "/v1/models/half/metadata", key=mine)
    signatures = metadata.doc["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"]["x"]["name"] == "x:0"
    assert metadata.doc["model_spec"] == {"name": "half", "signature_name": "", "version": "1"}
    assert signatures["serving_default"]["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert signatures["serving_default"]["inputs"]["x"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}],
        "unknown_rank": False,
    }


async def test_a_label_means_the_version_it_points_at_and_an_unknown_one_none(front: Rig, mine: Key) -> None:
    await front.publish(two_versions(labels={"stable": 1, "next": 2}))
    for label, version in (("stable", 1), ("next", 2)):
        status = await front.call("GET", f"/v1/models/half/labels/{label}", key=mine)
        assert [v["version"] for v in status.doc["model_version_status"]] == [str(version)]
        path = f"/v1/models/half/labels/{label}/metadata"
        metadata = await front.call("GET", path, key=mine)
        assert metadata.doc["model_spec"]["version"] == str(version)
    both = await front.call("GET", "/v1/models/half", key=mine)
    assert [v["version"] for v in both.doc["model_version_status"]] == ["2", "1"]
    for name in ("half", "none"):
        unknown = await front.call("GET", f"/v1/models/{name}/labels/beta", key=mine)
        assert (unknown.status, unknown.doc) == (400, {"error": "Unrecognized servable version label: beta"})


async def test_a_label_that_points_at_an_older_version_is_predicted_with_by_that_version(front: Rig, mine: Key) -> None:
    await front.publish(two_versions(labels={"stable": 1}))
    async with ScriptedWorker(front.bus, "half", versions=(1, 2)):
        serving = front.gateway._serving
        await holds(serving, lambda: (now := serving.get(names.token("half"))) and now.default == 2)
        ran = [
            await front.call("POST", path, {"instances": [1.0], **fields}, key=mine, headers=wait)
            for path, fields, wait in (
                ("/v1/models/half/labels/stable:predict", {}, {}),
                ("/v1/jobs", {"model": "half", "label": "stable"}, {"Prefer": "wait=10"}),
                ("/v1/models/half:predict", {}, {}),
            )
        ]
        jobs = [await front.call("GET", f"/v1/jobs/{got.headers['X-Signalbox-Job-Id']}", key=mine) for got in ran]
    assert [got.status for got in ran] == [200, 200, 200]
    assert [job.doc["version"] for job in jobs] == [1, 1, 2]


def two_versions(labels: dict[str, int]) -> Model:
    """``half`` in versions 1 and 2, of which 2 is served to callers that name none."""
    (first,) = model().versions
    return model(versions=(first, replace(first, version=2)), default_version=2, labels=labels)
