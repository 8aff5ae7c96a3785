"""Submitting twice under one Idempotency-Key is submitting once, whichever plugin answers and whatever crashed."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from gateway_plugin.admission.idempotency import Idempotency, digest_of
from signalbox.wire import names
from signalbox.wire.names import Bucket, Stream
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

PREDICT = "/v1/models/half:predict"
JOB = {"model": "half", "input": {"x": [1.0, 2.0, 5.0]}}
ROWS = {"instances": [1.0, 2.0, 5.0]}


async def send(front: Rig, mine: Key, name: str, body: Any = JOB, *, path: str = "/v1/jobs", **headers: str) -> Reply:
    sent = {"Idempotency-Key": name, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return await front.call("POST", path, body, key=mine, headers=sent)


async def stored(front: Rig, stream: str = Stream.JOBS) -> int:
    info = await front.bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
    return int(info["state"]["messages"])


def job_of(got: Reply) -> str:
    return got.headers["X-Signalbox-Job-Id"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/predict"])
async def test_the_same_key_and_body_give_the_same_job(front: Rig, mine: Key, path: str) -> None:
    first = await send(front, mine, "order-17", path=path)
    again = await send(front, mine, "order-17", path=path)
    assert (first.status, again.status) == (202, 202)
    assert job_of(first) == job_of(again) == again.doc["id"]
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert await stored(front) == 1


async def test_without_a_key_every_call_is_a_job_and_nothing_is_remembered(front: Rig, mine: Key) -> None:
    ids = {job_of(await front.call("POST", "/v1/jobs", JOB, key=mine)) for _ in range(2)}
    assert len(ids) == 2
    assert await stored(front, Bucket.IDEM.stream) == 0


async def test_another_body_or_another_target_under_the_same_key_is_422(front: Rig, mine: Key) -> None:
    await send(front, mine, "order-17")
    other = await send(front, mine, "order-17", {**JOB, "priority": "hi"})
    assert (other.status, other.doc["code"]) == (422, "idempotency_key_reused")
    elsewhere = await send(front, mine, "order-17", JOB, path=PREDICT)
    assert (elsewhere.status, set(elsewhere.doc)) == (422, {"error"})
    assert await stored(front) == 1


async def test_the_same_key_of_another_account_is_another_key(front: Rig, mine: Key) -> None:
    theirs = key()
    await front.publish(theirs)
    first, second = await send(front, mine, "order-17"), await send(front, theirs, "order-17")
    assert job_of(first) != job_of(second)
    assert "Idempotent-Replayed" not in second.headers


async def test_a_bad_body_does_not_use_a_key_up(front: Rig, mine: Key) -> None:
    bad = await send(front, mine, "order-17", {"model": "half", "input": {"z": [1.0]}})
    assert bad.status == 400
    good = await send(front, mine, "order-17")
    assert good.status == 202


@pytest.mark.parametrize("name", ["", "x" * 256, "caf\u00e9", "a\tb"])
async def test_what_cannot_be_a_key_is_400(front: Rig, mine: Key, name: str) -> None:
    got = await send(front, mine, name)
    assert got.status == 400
    assert await stored(front, Bucket.IDEM.stream) == 0


async def test_a_replay_of_what_has_ended_is_its_result(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half"):
        first = await send(front, mine, "a", ROWS, path=PREDICT)
        again = await send(front, mine, "a", ROWS, path=PREDICT)
        waited = await send(front, mine, "b", Prefer="wait=10")
        job = await send(front, mine, "b")
    assert (first.status, again.status) == (200, 200)
    assert first.body == again.body
    assert job_of(first) == job_of(again)
    assert (waited.status, job.status) == (200, 200)
    assert job.doc["result"] == waited.doc["result"] == {"outputs": [2.5, 3.0, 4.5]}
    assert await stored(front, Stream.STATE) == 2


async def test_a_replay_of_what_still_runs_waits_for_the_same_end(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half") as worker, asyncio.TaskGroup() as group:
        worker.go.clear()
        first = group.create_task(send(front, mine, "a", ROWS, path=PREDICT))
        await asyncio.wait_for(worker.claimed.wait(), 30)
        again = group.create_task(send(front, mine, "a", ROWS, path=PREDICT))
        impatient = await send(front, mine, "a", ROWS, path=PREDICT, Prefer="wait=0")
        queued = await send(front, mine, "a", ROWS, path=PREDICT, Prefer="respond-async")
        assert not first.done()
        worker.go.set()
    assert first.result().body == again.result().body
    assert job_of(first.result()) == job_of(again.result()) == job_of(impatient) == job_of(queued)
    assert (impatient.status, queued.status) == (504, 202)
    assert await stored(front, Stream.STATE) == 1


async def test_a_caller_who_leaves_and_has_a_key_finds_the_job_again(front: Rig, mine: Key) -> None:
    accepted = asyncio.Event()
    await front.bus.subscribe(names.event_of_jobs(), lambda _: accepted.set())
    await front.bus.flush()
    leaving = asyncio.create_task(send(front, mine, "a", ROWS, path=PREDICT))
    await asyncio.wait_for(accepted.wait(), 30)
    leaving.cancel()
    await asyncio.wait([leaving])
    async with ScriptedWorker(front.bus, "half"):
        again = await send(front, mine, "a", ROWS, path=PREDICT)
    assert again.status == 200
    assert again.headers["Idempotent-Replayed"] == "true"


async def test_a_crash_between_the_two_writes_converges_on_the_job_that_was_named(front: Rig, mine: Key) -> None:
    dead, alive = Idempotency.__new__(Idempotency), front.gateway._acceptance._idempotency
    dead.__dict__.update(alive.__dict__)
    digest = digest_of("submit", "", "", body=json.dumps(JOB).encode())
    idem = await dead.hold(await dead.look_up(mine.stored, "order-17", digest))
    early = await send(front, mine, "order-17")
    assert (early.status, early.doc["code"]) == (409, "conflict")
    assert int(early.headers["Retry-After"]) >= 1
    assert await stored(front) == 0
    alive._in_flight_s = 0.0
    late = await send(front, mine, "order-17")
    assert (late.status, job_of(late)) == (202, idem.job_id)
    assert job_of(await send(front, mine, "order-17")) == idem.job_id
    assert await stored(front) == 1


async def test_fifty_at_once_through_two_plugins_are_one_job_each_round(
    nats: NatsServer, tmp_path: Path, front: Rig, mine: Key
) -> None:
    (tmp_path / "other").mkdir()
    async with rig(nats.url, tmp_path / "other", request_timeout_s=20.0) as second:
        await second.publish(model(), mine)
        for number in range(20):
            name = str(uuid.uuid4())
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(send((front, second)[i % 2], mine, name)) for i in range(50)]
            replies = [task.result() for task in tasks]
            accepted = [got for got in replies if got.status == 202]
            assert {got.status for got in replies} <= {202, 409}
            assert len({job_of(got) for got in accepted}) == 1
            assert sum("Idempotent-Replayed" not in got.headers for got in accepted) == 1
            assert await stored(front) == number + 1
