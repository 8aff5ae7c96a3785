"""Many jobs in one call: each accepted or refused by itself, in order, and once under an Idempotency-Key."""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from signalbox.bus.client import Message
from signalbox.jobs.records import Records
from signalbox.wire import jobids, names
from signalbox.wire.keydocs import Share
from signalbox.wire.names import Stream
from tests.rigs import gateway
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, key, limits, model
from tests.rigs.natsserver import NatsServer
from workers.recovery.reconciler import JobReconciler

GOOD = {"model": "half", "inputs": {"x": [1.0]}}


@pytest.fixture
async def rig(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with gateway.rig(nats.url, tmp_path, fair_room=0) as made:
        await made.publish(model(), model("tiny", limits=limits(max_queue=3)))
        yield made


@pytest.fixture
async def whose(rig: Rig) -> Key:
    made = key(scopes=("jobs:submit", "jobs:read"))
    await rig.publish(made)
    return made


async def submit(rig: Rig, whose: Key, jobs: Any, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    return await rig.call("POST", "/v1/jobs", {"jobs": jobs} | more, key=whose, headers=headers)


def codes(reply: Reply) -> list[str]:
    """Of each job its state, or the code of the problem."""
    return [job["error"]["code"] if "error" in job else job["state"] for job in reply.doc["jobs"]]


def ids(reply: Reply) -> list[str]:
    return [job["id"] for job in reply.doc["jobs"] if "id" in job]


async def test_each_is_accepted_or_refused_by_itself_and_in_order(rig: Rig, whose: Key) -> None:
    reply = await submit(
        rig,
        whose,
        [
            GOOD,
            GOOD | {"model": "nosuch"},
            7,
            {"model": "half", "inputs": {"y": [1.0]}},
            GOOD | {"priority": "hi"},
            GOOD | {"deadlin_s": 3},
            GOOD | {"priority": "lo", "deadline_s": 60},
        ],
    )
    assert reply.status == 200
    assert codes(reply) == [
        *("queued", "not_found", "invalid_request", "invalid_input", "forbidden", "invalid_request", "queued"),
    ]
    assert (reply.doc["accepted"], reply.doc["refused"]) == (2, 5)
    assert 'Did you mean "deadline_s"' in reply.doc["jobs"][5]["error"]["detail"]
    first = reply.doc["jobs"][0]
    assert first["urls"]["self"] == f"/v1/jobs/{first['id']}"
    async with ScriptedWorker(rig.bus, "half"):
        for job_id in ids(reply):
            shown = await rig.call("GET", f"/v1/jobs/{job_id}", key=whose, headers={"Prefer": "wait=60"})
            assert shown.doc["result"] == {"outputs": [2.5]}


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_a_large_body_is_read_by_another_process_with_the_same_outcome(
    rig: Rig, whose: Key, encoding: str
) -> None:
    jobs = [GOOD | {"inputs": {"x": [1.0] * 500}, "tags": ["night"]} for _ in range(100)]
    jobs[3:6] = [{"model": "half"}, GOOD | {"model": "nosuch"}, []]  # type: ignore[list-item]
    body = json.dumps({"jobs": jobs}).encode()
    headers = {"Content-Encoding": encoding} if encoding else {}
    sent = gzip.compress(body) if encoding else body
    reply = await rig.call("POST", "/v1/jobs", sent, key=whose, headers=headers)
    assert codes(reply)[2:7] == ["queued", "invalid_request", "not_found", "invalid_request", "queued"]
    assert reply.doc["accepted"] == 97
    assert await rig.queued() == 97
    last = await Records(rig.bus).find(ids(reply)[-1])
    assert last is not None
    assert last.record.tags == ("night",)


async def test_a_thousand_are_taken_and_one_more_are_not(rig: Rig, whose: Key) -> None:
    taken = await submit(rig, whose, [GOOD] * 1000)
    assert (taken.doc["accepted"], len(set(ids(taken)))) == (1000, 1000)
    refused = await submit(rig, whose, [GOOD] * 1001)
    assert (refused.status, refused.doc["bound"]) == (413, "jobs")
    assert await rig.queued() == 1000


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"jobs": []}, "at least one job"),
        ({"jobs": GOOD}, "at least one job"),
        ({"jobs": [GOOD], "model": "half"}, 'Beside "jobs" the body has "model"'),
    ],
)
async def test_what_is_no_list_of_jobs_is_refused_as_a_whole(rig: Rig, whose: Key, body: Any, says: str) -> None:
    reply = await rig.call("POST", "/v1/jobs", body, key=whose)
    assert reply.status == 400
    assert says in reply.doc["detail"]


async def test_many_are_not_waited_for_and_are_submitted_on_one_path(rig: Rig, whose: Key) -> None:
    waiting = await submit(rig, whose, [GOOD], {"Prefer": "wait=5"})
    assert waiting.status == 400
    assert "leave Prefer: wait away" in waiting.doc["detail"]
    elsewhere = await rig.call("POST", "/v1/predict", {"jobs": [GOOD]}, key=whose)
    assert (elsewhere.status, elsewhere.doc["field"]) == (400, "jobs")
    reader = key(scopes=("jobs:read",))
    await rig.publish(reader)
    assert (await submit(rig, reader, [GOOD])).status == 403
    assert await rig.queued() == 0


async def test_a_repeat_under_its_key_is_the_same_jobs(rig: Rig, whose: Key) -> None:
    jobs, headers = [GOOD, GOOD | {"model": "nosuch"}, GOOD], {"Idempotency-Key": "once"}
    first = await submit(rig, whose, jobs, headers)
    again = await submit(rig, whose, jobs, headers)
    assert codes(again) == codes(first) == ["queued", "not_found", "queued"]
    assert ids(again) == ids(first)
    assert ids(first)[1] == jobids.job_id_after(ids(first)[0], 2)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert await rig.queued() == 2
    other = await submit(rig, whose, [GOOD], headers)
    assert other.status == 422


async def test_a_repeat_completes_what_a_full_queue_refused_and_runs_none_twice(rig: Rig, whose: Key) -> None:
    submitted: Counter[str] = Counter()

    def note(message: Message) -> None:
        submitted[names.job_of(message.subject)] += 1

    await rig.bus.subscribe("evt.jobs.>", note)
    jobs, headers = [GOOD | {"model": "tiny"}] * 5, {"Idempotency-Key": "once"}
    first = await submit(rig, whose, jobs, headers)
    assert codes(first) == ["queued"] * 3 + ["queue_full"] * 2
    assert first.doc["jobs"][3]["error"]["limit"] == 3
    async with ScriptedWorker(rig.bus, "tiny"):
        for job_id in ids(first):
            await rig.call("GET", f"/v1/jobs/{job_id}", key=whose, headers={"Prefer": "wait=60"})
    reconciler = JobReconciler(
        rig.bus, Records(rig.bus), workers=tuple, models=dict, worker="w", boot="b", clock=lambda: 1e11
    )
    async with asyncio.timeout(60):
        while await rig.queued():  # the messages of jobs that have ended go
            await reconciler.turn(is_whole=False)
    second = await submit(rig, whose, jobs, headers)
    assert codes(second) == ["succeeded"] * 3 + ["queued"] * 2
    assert ids(second)[:3] == ids(first)
    assert submitted == dict.fromkeys(ids(second), 1)


async def test_what_passes_the_account_s_stored_bytes_is_refused_and_the_others_are_not(rig: Rig) -> None:
    whose = key(share=Share(stored_bytes=5_000_000))
    await rig.publish(whose)
    large = GOOD | {"inputs": {"x": [1] * 500_000}}
    reply = await submit(rig, whose, [large, large, large, GOOD])
    refused = [job["error"] for job in reply.doc["jobs"] if "error" in job]
    assert [(one["code"], one["bound"]) for one in refused] == [("limit_exceeded", "stored_bytes")]
    assert codes(reply)[3] == "queued"


async def test_some_of_them_may_be_delayed(rig: Rig, whose: Key) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    reply = await submit(rig, whose, [GOOD | {"not_before": later}, GOOD], {"Idempotency-Key": "later"})
    assert codes(reply) == ["queued", "queued"]
    assert await rig.queued() == 1
    info = await rig.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}")
    assert info["state"]["messages"] == 1


async def test_a_large_body_of_one_job_keeps_its_tags_too(rig: Rig, whose: Key) -> None:
    body = GOOD | {"inputs": {"x": [1.0] * 30_000}, "tags": ["night", "batch/7"]}
    accepted = await rig.call("POST", "/v1/jobs", body, key=whose)
    assert accepted.doc["tags"] == ["night", "batch/7"]
    refused = await rig.call("POST", "/v1/jobs", body | {"tags": [f"t{n}" for n in range(9)]}, key=whose)
    assert (refused.status, refused.doc["field"]) == (400, "tags")
