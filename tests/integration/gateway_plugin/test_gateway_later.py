"""Delayed jobs over the job API: accepted without a message in the queue, bounded, read and cancelled."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from signalbox.jobs.records import Records
from signalbox.wire import jobids
from signalbox.wire.messages import Record, State
from signalbox.wire.names import Stream
from tests.rigs import gateway
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, key, limits, model
from tests.rigs.natsserver import NatsServer
from workers.recovery.reconciler import JobReconciler

BODY = {"model": "half", "inputs": {"x": [1.0, 2.0]}}


@pytest.fixture
async def rig(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with gateway.rig(nats.url, tmp_path, max_delayed=5, fair_room=3) as made:
        await made.publish(model("half", limits=limits(deadline_s=600.0)))
        yield made


@pytest.fixture
async def whose(rig: Rig) -> Key:
    made = key()
    await rig.publish(made)
    return made


def at(**delay: float) -> str:
    """An instant so far from now, with the offset of another zone."""
    return (datetime.now(UTC) + timedelta(**delay)).isoformat()


async def submit(rig: Rig, whose: Key, not_before: Any, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    body = BODY | {"not_before": not_before} | more
    return await rig.call("POST", "/v1/jobs", body, key=whose, headers=headers)


async def record(rig: Rig, job_id: str) -> Record:
    found = await Records(rig.bus).read(job_id)
    assert found is not None
    return found[0]


async def inputs(rig: Rig) -> int:
    info = await rig.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}")
    return int(info["state"]["messages"])


async def test_a_delayed_job_is_a_record_and_an_input_and_says_what_it_waits_for(rig: Rig, whose: Key) -> None:
    begun_at = time.time()
    accepted = await submit(rig, whose, at(hours=2))
    assert accepted.status == 202
    assert 7190 < int(accepted.headers["Retry-After"]) <= 7200
    assert await rig.queued() == 0
    assert await inputs(rig) == 1
    shown = (await rig.call("GET", f"/v1/jobs/{accepted.doc['id']}", key=whose)).doc
    for doc in (accepted.doc, shown):
        assert (doc["state"], doc["position"]) == ("queued", None)
        assert doc["phase"] == f"waiting until {doc['not_before']}: not before"
    stored = await record(rig, accepted.doc["id"])
    assert stored.not_before == pytest.approx(begun_at + 7200, abs=60)
    assert stored.deadline_at == stored.not_before + 600, "the deadline counts from there"
    assert stored.input is not None


@pytest.mark.parametrize("not_before", ["2020-01-01T00:00:00Z", None])
async def test_an_instant_that_has_passed_or_none_is_at_once(rig: Rig, whose: Key, not_before: str | None) -> None:
    accepted = await submit(rig, whose, not_before)
    assert accepted.status == 202
    assert accepted.doc["not_before"] is None
    assert await rig.queued() == 1
    assert await inputs(rig) == 0


@pytest.mark.parametrize(
    ("not_before", "says"),
    [
        ("tomorrow", '"not_before" must be an instant'),
        ("2030-01-01T00:00:00", '"not_before" must be an instant'),
        (1893456000, '"not_before" must be an instant'),
        pytest.param(at(days=7), "together they may be 604800 s", id="in a week"),
    ],
)
async def test_what_is_no_instant_or_too_far_off_is_refused(rig: Rig, whose: Key, not_before: Any, says: str) -> None:
    refused = await submit(rig, whose, not_before)
    assert (refused.status, refused.doc["field"]) == (400, "not_before")
    assert says in refused.doc["detail"]
    assert await inputs(rig) == 0


async def test_a_delayed_job_is_cancelled_by_its_owner(rig: Rig, whose: Key) -> None:
    job_id = (await submit(rig, whose, at(hours=2))).doc["id"]
    cancelled = await rig.call("POST", f"/v1/jobs/{job_id}/cancel", key=whose)
    assert (cancelled.status, cancelled.doc["state"]) == (200, "cancelled")
    assert (await record(rig, job_id)).state is State.CANCELLED


async def test_its_deadline_is_not_moved_before_its_time(rig: Rig, whose: Key) -> None:
    job_id = (await submit(rig, whose, at(hours=2))).doc["id"]
    refused = await rig.call("PATCH", f"/v1/jobs/{job_id}", {"deadline_s": 3600}, key=whose)
    assert (refused.status, refused.doc["field"]) == (400, "deadline_s")
    moved = await rig.call("PATCH", f"/v1/jobs/{job_id}", {"deadline_s": 7300}, key=whose)
    assert moved.status == 200
    assert await rig.queued() == 0


async def test_a_repeat_under_its_key_is_the_same_job_before_and_after_its_time(rig: Rig, whose: Key) -> None:
    due, headers = at(hours=2), {"Idempotency-Key": "once"}
    first = await submit(rig, whose, due, headers)
    again = await submit(rig, whose, due, headers)
    assert (first.status, again.status) == (202, 202)
    assert again.doc["id"] == first.doc["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert await inputs(rig) == 1


async def test_delayed_jobs_of_an_account_are_bounded_and_those_of_another_are_not(rig: Rig, whose: Key) -> None:
    taken = [await submit(rig, whose, at(hours=2)) for _ in range(5)]
    assert [reply.doc["priority"] for reply in taken] == ["mid", "mid", "mid", "lo", "lo"], (
        "they may all come due at once"
    )
    assert taken[-1].doc["demoted_from"] == "mid"
    refused = await submit(rig, whose, at(hours=2))
    assert (refused.status, refused.doc["bound"], refused.doc["limit"]) == (429, "delayed", 5)
    other = key()
    await rig.publish(other)
    assert (await submit(rig, other, at(hours=2))).status == 202
    assert (await submit(rig, whose, None)).status == 202, "at once"


async def test_it_runs_when_its_time_has_come_and_its_input_goes(rig: Rig, whose: Key) -> None:
    job_id = (await submit(rig, whose, at(hours=2))).doc["id"]
    ahead_s = 0.0
    reconciler = JobReconciler(
        rig.bus,
        Records(rig.bus),
        workers=tuple,
        models=dict,
        worker="w",
        boot="b",
        clock=lambda: time.time() + ahead_s,
    )
    await reconciler.turn()
    ahead_s = 7_201.0
    await reconciler.release()
    async with ScriptedWorker(rig.bus, "half"):
        shown = await rig.call("GET", f"/v1/jobs/{job_id}", key=whose, headers={"Prefer": "wait=60"})
    assert (shown.doc["state"], shown.doc["result"]) == ("succeeded", {"outputs": [2.5, 3.0]})
    await reconciler.turn()
    assert await inputs(rig) == 0
    assert jobids.JOB_ID.match(job_id)


async def test_delayed_jobs_of_one_call_are_bounded_too(rig: Rig, whose: Key) -> None:
    jobs = [BODY | {"not_before": at(hours=2)} for _ in range(20)]
    reply = await rig.call("POST", "/v1/jobs", {"jobs": jobs}, key=whose)
    assert (reply.doc["accepted"], reply.doc["refused"]) == (5, 15)
    classes = [(await record(rig, one["id"])).priority for one in reply.doc["jobs"][:5]]
    assert classes == ["mid", "mid", "mid", "lo", "lo"]
    assert {one["error"]["bound"] for one in reply.doc["jobs"][5:]} == {"delayed"}
    refused = await rig.call("POST", "/v1/jobs", {"jobs": jobs}, key=whose)
    assert (refused.doc["accepted"], refused.doc["refused"]) == (0, 20)
    cancelled = await rig.call("POST", "/v1/jobs/cancel", {"ids": [reply.doc["jobs"][0]["id"]]}, key=whose)
    assert cancelled.doc["done"] == 1
