"""Owners change, retry and delete their jobs: what a job then is, what it never is, and what is left of it."""

import asyncio
import base64
import json
import time
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.jobs import deadletters, deletion, life, payloads
from signalbox.jobs.message import remove_below
from signalbox.jobs.message import submit as write_message
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.records import Found, Records
from signalbox.wire import jobids, names, tensors
from signalbox.wire.messages import DeadLetter, ErrorInfo, Job, PayloadRef, Record, State, decode, header
from signalbox.wire.names import Header, Stream
from signalbox.wire.tensors import Tensor
from tests.rigs.edge import edge
from tests.rigs.gateway import ALL_SCOPES, Key, Reply, Rig, ScriptedWorker, key, limits, model, rig
from tests.rigs.natsserver import NatsServer
from workers.recovery.reconciler import JobReconciler

MARKER = b"a secret of one owner alone"
BODY = {"model": "half", "input": {"x": [1.0, 2.0, 5.0]}}
GIVEN_UP = DeadLetter(error=ErrorInfo(code="deadline_exceeded", message="It ran too long."), attempt=5)


@pytest.fixture
async def front(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(nats.url, tmp_path, request_timeout_s=20.0) as made:
        yield made


async def submit(front: Rig, mine: Key, **fields: object) -> str:
    got = await front.call("POST", "/v1/jobs", {**BODY, **fields}, key=mine)
    assert got.status == 202, got
    return str(got.doc["id"])


async def change(front: Rig, mine: Key, job_id: str, **fields: object) -> Reply:
    return await front.call("PATCH", f"/v1/jobs/{job_id}", fields, key=mine)


async def messages(front: Rig) -> list[tuple[str, str]]:
    """Class and job of each message in ``JOBS``, in order."""
    stored = await front.bus.list_latest(Stream.JOBS, ["jobs.>"])
    return [(names.class_of(one.subject)[1], names.job_of(one.subject)) for one in stored]


async def job_of(front: Rig, job_id: str) -> tuple[Job, bytes]:
    stored = await Records(front.bus).queued(job_id)
    assert stored is not None
    return decode(Job, stored.headers[Header.JOB]), stored.data


async def found(front: Rig, job_id: str) -> Found:
    read = await Records(front.bus).find(job_id)
    assert read is not None
    return read


def reconciler(front: Rig, **more: Any) -> JobReconciler:
    settings: dict[str, Any] = {"workers": list, "models": dict, "worker": "w1", "boot": "w1", "settled_s": -60.0}
    return JobReconciler(front.bus, Records(front.bus), **(settings | more))


# ---------------------------------------------------------------------------------- change


async def test_a_raised_job_overtakes_those_before_it_and_runs_once(front: Rig, mine: Key) -> None:
    first, second = await submit(front, mine, priority="lo"), await submit(front, mine, priority="lo")
    raised = await change(front, mine, second, priority="hi")
    assert (raised.status, raised.doc["priority"], raised.doc["state"]) == (200, "hi", "queued")
    assert raised.doc["id"] == raised.headers["X-Signalbox-Job-Id"] == second
    assert await messages(front) == [("lo", first), ("lo", second), ("hi", second)]
    again = await change(front, mine, second, priority="hi")
    assert (again.status, again.doc["priority"]) == (200, "hi")
    assert len(await messages(front)) == 3
    async with ScriptedWorker(front.bus, "half") as worker:
        await asyncio.wait_for(worker.finished.wait(), 60)
        done = await front.call("GET", f"/v1/jobs/{second}", key=mine, headers={"Prefer": "wait=60"})
        await front.call("GET", f"/v1/jobs/{first}", key=mine, headers={"Prefer": "wait=60"})
    assert (done.doc["state"], done.doc["attempt"], done.doc["priority"]) == ("succeeded", 1, "hi")
    assert done.doc["result"] == {"outputs": [2.5, 3.0, 4.5]}


async def test_both_messages_of_a_raised_job_go_after_its_end(front: Rig, mine: Key) -> None:
    now = time.time()
    job_id, other = await submit(front, mine, priority="lo"), await submit(front, mine, priority="lo")
    assert (await change(front, mine, job_id, priority="mid")).status == 200
    assert (await change(front, mine, job_id, priority="hi")).status == 200
    assert [class_ for class_, one in await messages(front) if one == job_id] == ["lo", "mid", "hi"]
    assert (await front.call("POST", f"/v1/jobs/{job_id}/cancel", key=mine)).doc["state"] == "cancelled"
    later = reconciler(front, clock=lambda: now + 700)  # old enough that single messages go
    assert await later.turn(is_whole=False)
    assert await messages(front) == [("lo", other)]


async def test_of_a_raised_job_the_messages_below_go_and_none_that_is_above_or_later(front: Rig, mine: Key) -> None:
    other, job_id = await submit(front, mine, priority="lo"), await submit(front, mine, priority="lo")
    for priority in ("mid", "hi"):
        assert (await change(front, mine, job_id, priority=priority)).status == 200
    job, _ = await job_of(front, job_id)
    assert job.is_raised
    stored = await Records(front.bus).queued(job_id)
    assert stored is not None
    for before, left in ((2, ["lo", "mid", "hi"]), (0, ["hi"]), (0, ["hi"])):
        await remove_below(front.bus, job, stored.seq - before)
        assert [class_ for class_, one in await messages(front) if one == job_id] == left
    await remove_below(front.bus, replace(job, priority="lo"), stored.seq)
    assert await messages(front) == [("lo", other), ("hi", job_id)]


async def test_only_a_waiting_job_is_changed_and_a_class_is_never_lowered(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half") as worker:
        worker.go.clear()
        job_id = await submit(front, mine, priority="lo")
        await asyncio.wait_for(worker.claimed.wait(), 60)
        for fields in ({"priority": "hi"}, {"deadline_s": 5}):
            running = await change(front, mine, job_id, **fields)
            assert (running.status, running.doc["state"]) == (409, "running")
            assert "A worker has the job already" in running.doc["detail"]
        worker.go.set()
        await front.call("GET", f"/v1/jobs/{job_id}", key=mine, headers={"Prefer": "wait=60"})
    ended = await change(front, mine, job_id, priority="hi")
    assert (ended.status, ended.doc["detail"]) == (409, "The job has already ended: succeeded.")
    lowered = await change(front, mine, await submit(front, mine), priority="lo")
    assert (lowered.status, lowered.doc["code"]) == (409, "conflict")
    assert 'it can be raised, not lowered to "lo"' in lowered.doc["detail"]


async def test_a_job_that_waits_for_another_attempt_is_not_raised_past_its_pause(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine, priority="lo")
    job, _ = await job_of(front, job_id)
    records, now = Records(front.bus), time.time()
    claimed = life.claimed(job, None, worker="w1", gpu="g", token=1, now=now)
    revision = await records.write(claimed, expect=0)
    struck = life.requeued(claimed, GIVEN_UP.error, now=now, penalty=Penalty.STRIKE, retry_at=now + 60)
    await records.write(struck, expect=revision)
    raised = await change(front, mine, job_id, priority="hi")
    assert (raised.status, raised.doc["state"]) == (409, "queued")
    assert "A worker has had the job already" in raised.doc["detail"]
    moved = await change(front, mine, job_id, priority="lo", deadline_s=500)
    assert moved.status == 200
    assert await messages(front) == [("lo", job_id)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "The body must say what changes"),
        (None, "The body must say what changes"),
        ({"priority": "urgent"}, '"priority" must be one of hi, mid, lo.'),
        ({"deadline_s": 0}, '"deadline_s" must be a number of seconds'),
        ({"deadline_s": 7 * 86_400}, "after the job was accepted"),
        ({"tags": ["a"]}, 'unknown field: "tags"'),
        ([1], "must be a JSON object"),
    ],
)
async def test_a_change_that_says_nothing_or_too_much_is_400(front: Rig, mine: Key, body: Any, words: str) -> None:
    got = await front.call("PATCH", f"/v1/jobs/{await submit(front, mine)}", body, key=mine)
    assert got.status == 400, got
    assert words in got.doc["detail"]


async def test_raising_a_job_to_hi_needs_the_right_to_be_urgent(front: Rig, mine: Key) -> None:
    calm = key(account_id=mine.stored.account_id, scopes=tuple(one for one in ALL_SCOPES if one != "jobs:urgent"))
    await front.publish(calm)
    job_id = await submit(front, mine, priority="lo")
    assert (await change(front, calm, job_id, priority="hi")).status == 403
    assert (await change(front, calm, job_id, priority="mid")).status == 200
    assert [class_ for class_, _ in await messages(front)] == ["lo", "mid"]


async def test_a_job_is_not_raised_past_its_account_s_share_of_a_class(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path, fair_room=2) as front:
        mine, other = key(), key()
        await front.publish(model(limits=limits(max_queue=12)), mine, other)
        await submit(front, other)
        jobs = [await submit(front, mine, priority="lo") for _ in range(8)]
        answers = [await change(front, mine, job, priority="mid") for job in jobs]
    refused = [got for got in answers if got.status != 200]
    assert refused, "an account's place in a class is bounded, however its jobs come there"
    assert {(got.status, got.doc["code"]) for got in refused} <= {(429, "limit_exceeded"), (429, "queue_full")}


async def test_a_deadline_moved_away_outlives_the_message_s_own(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine, deadline_s=30)
    moved = await change(front, mine, job_id, deadline_s=600)
    assert moved.status == 200
    assert await messages(front) == [("mid", job_id)], "a deadline needs no message"
    now = time.time()
    assert await reconciler(front, clock=lambda: now + 60).turn()
    assert (await found(front, job_id)).record.state is State.QUEUED
    assert await reconciler(front, worker="w1", clock=lambda: now + 620).turn()
    assert (await found(front, job_id)).record.state is State.EXPIRED


async def test_a_deadline_is_not_moved_before_the_job_may_start(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine, not_before=f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}")
    refused = await change(front, mine, job_id, deadline_s=600)
    assert (refused.status, "not to run before then" in refused.doc["detail"]) == (400, True)
    assert (await change(front, mine, job_id, deadline_s=7200)).status == 200


async def test_a_deadline_drawn_closer_ends_the_job_sooner(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine, deadline_s=600)
    assert (await change(front, mine, job_id, deadline_s=30)).status == 200
    now = time.time()
    assert await reconciler(front, clock=lambda: now + 40).turn()
    assert (await found(front, job_id)).record.state is State.EXPIRED
    assert await messages(front) == []


async def test_changes_beside_claims_leave_one_attempt_of_each_job(front: Rig, mine: Key) -> None:
    async with ScriptedWorker(front.bus, "half"):
        for _ in range(15):
            job_id = await submit(front, mine, priority="lo")
            got = await change(front, mine, job_id, priority="hi", deadline_s=300)
            assert got.status in {200, 409}
            done = await front.call("GET", f"/v1/jobs/{job_id}", key=mine, headers={"Prefer": "wait=60"})
            assert (done.doc["state"], done.doc["attempt"]) == ("succeeded", 1)


async def test_a_delayed_job_is_queued_in_the_class_that_it_was_raised_to(front: Rig, mine: Key) -> None:
    due = datetime.now(UTC) + timedelta(seconds=60)
    job_id = await submit(front, mine, priority="lo", not_before=due.isoformat(), deadline_s=300)
    assert (await change(front, mine, job_id, priority="hi", deadline_s=600)).status == 200
    assert await messages(front) == [], "it has none before its time"
    one = reconciler(front, clock=lambda: due.timestamp() + 1)
    assert await one.turn()
    await one.release()
    assert await messages(front) == [("hi", job_id)]
    assert (await change(front, mine, job_id, deadline_s=400)).status == 200
    assert await one.turn()
    await one.release()
    assert await messages(front) == [("hi", job_id)], "it is queued once"
    assert await one.turn()
    assert (await found(front, job_id)).record.state is State.QUEUED
    await one.close()


# ---------------------------------------------------------------------------------- retry


async def give_up(front: Rig, job_id: str, notice: DeadLetter = GIVEN_UP) -> Record:
    """The job becomes a dead letter, as a worker makes it one."""
    job, body = await job_of(front, job_id)
    await deadletters.keep(front.bus, job, body, notice)
    records = Records(front.bus)
    running = life.claimed(job, None, worker="w1", gpu="g", token=1, now=time.time())
    revision = await records.write(running, expect=0)
    failed = life.failed(running, notice.error, now=time.time())
    await records.write(failed, expect=revision)
    return failed


async def retry(front: Rig, mine: Key, job_id: str, **fields: object) -> Reply:
    return await front.call("POST", f"/v1/jobs/{job_id}/retry", fields or None, key=mine)


@pytest.mark.parametrize("size", [3, 100_000])
async def test_a_job_that_was_given_up_runs_again_as_a_new_one_once(front: Rig, mine: Key, size: int) -> None:
    values = [1.0, 2.0, 5.0] + [0.0] * (size - 3)
    old = await submit(front, mine, input={"x": values})
    await give_up(front, old)
    got = await retry(front, mine, old)
    assert (got.status, got.doc["redrive_of"], got.doc["state"]) == (202, old, "queued")
    new = got.doc["id"]
    assert got.headers["Location"] == f"/v1/jobs/{new}"
    assert new != old
    assert (await retry(front, mine, old)).doc["id"] == new
    async with ScriptedWorker(front.bus, "half"):
        done = await front.call("GET", f"/v1/jobs/{new}", key=mine, headers={"Prefer": "wait=60"})
    assert done.doc["result"]["outputs"][:3] == [2.5, 3.0, 4.5]
    assert (await retry(front, mine, old)).doc["id"] == new, "it has ended, and is still the one"
    second = await retry(front, mine, old, after=new)
    assert (second.status, second.doc["id"] not in {old, new}) == (202, True)
    unclear = await retry(front, mine, old)
    assert (unclear.status, second.doc["id"] in unclear.doc["detail"]) == (409, True)


async def test_a_job_without_a_kept_input_is_409_with_the_reason(front: Rig, mine: Key) -> None:
    waiting = await retry(front, mine, await submit(front, mine))
    assert (waiting.status, "has not ended" in waiting.doc["detail"]) == (409, True)
    async with ScriptedWorker(front.bus, "half"):
        good = await submit(front, mine)
        await front.call("GET", f"/v1/jobs/{good}", key=mine, headers={"Prefer": "wait=60"})
    done = await retry(front, mine, good)
    assert (done.status, "succeeded" in done.doc["detail"]) == (409, True)
    lost = await submit(front, mine)
    job, _ = await job_of(front, lost)
    gone = names.job_input(job.account_id, lost, 12)
    ref = PayloadRef(subject=gone, size=12, chunks=1, first_seq=1, sha256="0" * 64)
    await deadletters.keep(front.bus, replace(job, ref=ref), b"", GIVEN_UP)
    await Records(front.bus).write(life.failed(life.first_record(job, State.QUEUED), GIVEN_UP.error, now=1.0), expect=0)
    kept = await retry(front, mine, lost)
    assert (kept.status, "The input had aged out" in kept.doc["detail"]) == (409, True)


async def test_an_input_that_ends_its_runner_is_only_run_again_by_an_operator(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine)
    await give_up(front, job_id, DeadLetter(error=ErrorInfo(code="poison", message="It was run 3 times alone.")))
    got = await retry(front, mine, job_id)
    assert (got.status, "operator" in got.doc["detail"]) == (409, True)


async def test_a_letter_outlives_its_record_for_its_owner_and_for_nobody_else(front: Rig, mine: Key) -> None:
    job_id, stranger = await submit(front, mine), key()
    await front.publish(stranger)
    await give_up(front, job_id)
    await front.bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.STATE}")
    await front.bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}")
    assert (await retry(front, stranger, job_id)).status == 404
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=stranger)).status == 404
    assert (await retry(front, mine, job_id)).status == 202
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 202
    assert await reconciler(front).turn(is_whole=False)
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 204


# ---------------------------------------------------------------------------------- delete


async def everywhere(bus: Bus, text: bytes) -> list[str]:
    """Where ``text`` is found, of all that the server gives of any stream: subjects, headers and bodies."""
    found: list[str] = []
    offset = 0
    listed = (await bus.request_json("$JS.API.STREAM.LIST", {"offset": offset}))["streams"]
    for info in listed:
        name, state = info["config"]["name"], info["state"]
        for seq in range(state["first_seq"], state["last_seq"] + 1):
            _, body = await bus.request(f"$JS.API.STREAM.MSG.GET.{name}", json.dumps({"seq": seq}).encode())
            message = json.loads(body).get("message")
            if message is None:
                continue
            raw = base64.b64decode(message.get("hdrs", "")) + base64.b64decode(message.get("data", ""))
            if text in raw or text in message["subject"].encode():
                found.append(f"{name} {message['subject']} {seq}")
    return found


def marked(size: int) -> Tensor:
    data = MARKER + bytes(-len(MARKER) % 4) + bytes(4 * size)
    return Tensor("x", "float32", (len(data) // 4,), data)


async def put_marked(front: Rig, mine: Key, size: int) -> str:
    """A job whose input, result and error hold the marker; in every place where a job's may lie, ended."""
    account, job_id, now = mine.stored.account_id, jobids.new_job_id(time.time(), uuid.uuid4().int), time.time()
    frame = tensors.encode([marked(size)])
    why = ErrorInfo(code="model_error", message=f"This is refused: {MARKER.decode()}")
    job = Job(
        id=job_id,
        model="half",
        version=1,
        signature="serving_default",
        account_id=account,
        created_at=now,
        deadline_at=now + 600,
        trace=MARKER.decode(),
        tags=("secret",),
    )
    if size > 10_000:
        job, body = replace(job, ref=(await payloads.store_input(front.bus, job, frame)).ref), b""
    else:
        body = frame
    await write_message(front.bus, job, body)
    await write_message(front.bus, replace(job, priority="hi"), body)
    await deadletters.keep(front.bus, job, body, DeadLetter(error=why))
    result = await payloads.store(front.bus, account, job_id, "out1", frame)
    records = Records(front.bus)
    running = life.claimed(job, None, worker="w1", gpu="g", token=1, now=now)
    first = await records.write(running, expect=0)
    ended = life.succeeded(running, now=now, batch=1, size_bytes=len(frame), ref=result)
    await records.write(replace(ended, error=why), body, expect=first)
    return job_id


@pytest.mark.parametrize("size", [16, 300_000])
async def test_nothing_of_a_deleted_job_is_left_in_any_stream(front: Rig, mine: Key, size: int) -> None:
    kept = await put_marked(front, mine, 16)
    job_id = await put_marked(front, mine, size)
    path = f"/v1/jobs/{job_id}"
    streams = {where.split()[0] for where in await everywhere(front.bus, MARKER)}
    assert {"JOBS", "STATE", "DLQ", "PAYLOADS"} <= streams
    assert {"INPUTS", "DLQ_PARTS"} <= streams or size < 10_000
    first = await front.call("DELETE", path, key=mine)
    assert (first.status, first.doc["state"]) == (202, "being deleted")
    assert first.headers["Retry-After"] == "1"
    for gone in (path, f"{path}/result"):
        got = await front.call("GET", gone, key=mine)
        assert (got.status, got.doc["code"]) == (410, "gone")
        assert got.doc["detail"] == "The job was deleted."
    assert await reconciler(front).turn(is_whole=False)
    assert (await front.call("DELETE", path, key=mine)).status == 204
    assert (await front.call("DELETE", path, key=mine)).status == 204
    (tombstone,) = await everywhere(front.bus, job_id.encode())
    assert tombstone.startswith("STATE ")
    assert all(kept in where for where in await everywhere(front.bus, MARKER)), "its neighbour's is there"
    record = (await found(front, job_id)).record
    assert record.deleted_at
    assert record == Record(
        id=job_id,
        model="half",
        version=1,
        signature="",
        account_id=mine.stored.account_id,
        state=State.SUCCEEDED,
        created_at=record.created_at,
        deadline_at=record.deadline_at,
        finished_at=record.finished_at,
        deleted_at=record.deleted_at,
    )


async def test_an_answer_without_a_body_says_no_length_and_leaves_the_connection_open(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine)
    await front.call("POST", f"/v1/jobs/{job_id}/cancel", key=mine)
    await front.bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}")
    async with edge(front) as client:
        headers = {"Authorization": f"Bearer {mine.text}"}
        gone = await client.delete(f"/v1/jobs/{job_id}", headers=headers)
        assert (gone.status_code, gone.content) == (204, b"")
        assert "content-length" not in gone.headers
        assert (await client.get(f"/v1/jobs/{job_id}", headers=headers)).status_code == 410


async def test_what_an_attempt_that_lost_the_job_stored_later_goes_too(front: Rig, mine: Key) -> None:
    now = time.time()
    job_id = await put_marked(front, mine, 16)
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 202
    one = reconciler(front, clock=lambda: now)
    assert await one.turn(is_whole=False)
    assert await everywhere(front.bus, MARKER) == []
    await payloads.store(front.bus, mine.stored.account_id, job_id, "out0", MARKER)
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 202
    now += 301
    assert await one.turn(is_whole=False)
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 204


async def test_what_was_stored_after_both_looks_goes_when_its_owner_asks_again(front: Rig, mine: Key) -> None:
    job_id = await put_marked(front, mine, 16)
    now = time.time()
    one = reconciler(front, clock=lambda: now)
    before = await found(front, job_id)
    old = life.deleted(before.record, now=now - deletion.LOOKED_AT_S)
    await Records(front.bus).write(old, expect=before.revision)
    assert await one.turn(is_whole=False)
    now += 301
    assert await one.turn(is_whole=False)
    await payloads.store(front.bus, mine.stored.account_id, job_id, "out0", MARKER)
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 202
    assert await one.turn(is_whole=False)
    assert await everywhere(front.bus, MARKER) == []
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 204


async def test_an_open_job_is_not_deleted(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine)
    got = await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)
    assert (got.status, got.doc["detail"]) == (409, "The job has not ended, it is queued: cancel it first.")
    assert (await front.call("POST", f"/v1/jobs/{job_id}/cancel", key=mine)).doc["state"] == "cancelled"
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 202


async def test_an_idempotency_key_does_not_bring_a_deleted_job_back(front: Rig, mine: Key) -> None:
    named = {"Idempotency-Key": "once"}
    got = await front.call("POST", "/v1/jobs", BODY, key=mine, headers=named)
    job_id = got.doc["id"]
    await front.call("POST", f"/v1/jobs/{job_id}/cancel", key=mine)
    assert (await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)).status == 202
    assert await reconciler(front).turn(is_whole=False)
    again = await front.call("POST", "/v1/jobs", BODY, key=mine, headers=named)
    assert (again.status, again.doc["code"]) == (410, "gone")
    for method, path in (("POST", "/cancel"), ("POST", "/retry")):
        assert (await front.call(method, f"/v1/jobs/{job_id}{path}", key=mine)).status == 410
    assert (await change(front, mine, job_id, deadline_s=60)).status == 410
    assert await front.queued() == 0


async def test_a_late_message_of_a_deleted_job_is_not_run(front: Rig, mine: Key) -> None:
    job_id = await submit(front, mine)
    job, body = await job_of(front, job_id)
    await front.call("POST", f"/v1/jobs/{job_id}/cancel", key=mine)
    await front.call("DELETE", f"/v1/jobs/{job_id}", key=mine)
    subject = names.job("half", "hi", job.account_id, job_id)
    await front.bus.write(subject, body, headers={Header.JOB: header(job)}, expect=0)
    before = await Records(front.bus).read(job_id)
    async with ScriptedWorker(front.bus, "half"):
        other = await submit(front, mine)
        await front.call("GET", f"/v1/jobs/{other}", key=mine, headers={"Prefer": "wait=60"})
    assert await Records(front.bus).read(job_id) == before
