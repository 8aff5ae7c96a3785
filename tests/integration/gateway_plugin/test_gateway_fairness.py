"""One account floods a model: what becomes of its jobs, and how long the others' wait."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from gateway_plugin.admission import queues
from gateway_plugin.admission.queues import DEMOTED
from signalbox.jobs import delivery
from signalbox.wire import names
from signalbox.wire.messages import Record, decode
from signalbox.wire.modeldocs import Batching, Signature, TensorSpec, Version
from signalbox.wire.names import Header, Stream
from tests.rigs import lightworker
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, key, limits, model, rig
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger
from tests.rigs.workerprocess import WorkerProcess

ROOM: Final = 8
IN_FLIGHT: Final = 4
"""Of a quick model without batches: two that run, two that wait."""
SECONDS: Final = Signature(
    inputs={"seconds": TensorSpec(dtype="float32", shape=(-1,))},
    outputs={"y": TensorSpec(dtype="float32", shape=(-1,))},
)


@pytest.fixture
async def fair(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    """A plugin that keeps little room."""
    async with rig(nats.url, tmp_path, request_timeout_s=20.0, fair_room=ROOM) as made:
        yield made


async def submit(front: Rig, by: Key, priority: str = "mid", **headers: str) -> Reply:
    body = {"model": "half", "input": {"x": [1.0]}, "priority": priority}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await front.call("POST", "/v1/jobs", body, key=by, headers=sent)


async def flood(front: Rig, by: Key, number: int, priority: str = "mid") -> Counter[str]:
    """Classes of so many jobs, sent one after the other, each when the server counts the one before."""
    waiting = sum(await queued(front))
    replies = []
    for sent in range(number):
        replies.append(await submit(front, by, priority))
        await counted(front, waiting + sent + 1)
    assert {got.status for got in replies} == {202}
    return Counter(got.doc["priority"] for got in replies)


async def queued(front: Rig) -> tuple[int, ...]:
    found = await delivery.find_all(front.bus, "half", 0)
    return tuple(info.num_pending for info in found.values())


async def counted(front: Rig, number: int) -> None:
    """Returns when so many jobs wait as the server tells: its count follows its acknowledgement, by milliseconds."""
    async with asyncio.timeout(60):
        while sum(await queued(front)) < number:  # noqa: ASYNC110  no event tells when it has
            await asyncio.sleep(0.001)


async def test_a_full_queue_is_found_full_after_it_was_forgotten_for_those_of_other_models(
    fair: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_MOST_QUEUES", 1)
    mine = key()
    await fair.publish(model(limits=limits(max_queue=1)), model("other"), mine)
    await flood(fair, mine, 1)
    other = await fair.call("POST", "/v1/jobs", {"model": "other", "input": {"x": [1.0]}}, key=mine)
    assert other.status == 202
    refused = await submit(fair, mine)
    assert (refused.status, refused.doc["code"]) == (429, "queue_full")


async def test_a_flood_goes_to_lo_and_a_newcomer_goes_before_it(fair: Rig) -> None:
    mine, other = key(), key()
    await fair.publish(model(), mine, other)
    before = DEMOTED.labels("half")._value.get()
    assert await flood(fair, mine, 30) == {"mid": ROOM // 2, "lo": 30 - ROOM // 2}
    assert DEMOTED.labels("half")._value.get() - before == 30 - ROOM // 2
    assert await flood(fair, other, 1) == {"mid": 1}
    assert await queued(fair) == (0, ROOM // 2 + 1, 30 - ROOM // 2)


async def test_the_answer_and_the_job_say_the_priority_it_really_has(fair: Rig) -> None:
    mine = key()
    await fair.publish(model(), mine)
    first = await submit(fair, mine)
    assert (first.doc["priority"], "demoted_from" in first.doc) == ("mid", False)
    await counted(fair, 1)
    await flood(fair, mine, ROOM)
    sent = await submit(fair, mine)
    assert (sent.doc["priority"], sent.doc["demoted_from"]) == ("lo", "mid")
    waited = await submit(fair, mine, Prefer="wait=0")
    assert (waited.doc["priority"], waited.doc["demoted_from"]) == ("lo", "mid")
    read = await fair.call("GET", f"/v1/jobs/{sent.doc['id']}", key=mine)
    assert read.doc["priority"] == "lo"
    queued_before = sum(await queued(fair))
    async with asyncio.TaskGroup() as group:
        # A worker that began first could empty the class, and the job would rightly go where it was asked to.
        ending = group.create_task(submit(fair, mine, Prefer="wait=60"))
        await counted(fair, queued_before + 1)
        async with ScriptedWorker(fair.bus, "half"):
            ended = await ending
    assert (ended.status, ended.doc["priority"]) == (200, "lo")


async def test_a_repeat_of_a_job_that_went_to_lo_is_the_same_job(fair: Rig) -> None:
    mine = key()
    await fair.publish(model(), mine)
    await flood(fair, mine, ROOM)
    first = await submit(fair, mine, Idempotency_Key="order-17")
    again = await submit(fair, mine, Idempotency_Key="order-17")
    assert first.doc["priority"] == again.doc["priority"] == "lo"
    assert first.doc["id"] == again.doc["id"]
    assert sum(await queued(fair)) == ROOM + 1


async def test_urgent_jobs_above_their_share_go_to_lo_as_well(fair: Rig) -> None:
    mine, other = key(), key()
    await fair.publish(model(), mine, other)
    assert await flood(fair, mine, 20, "hi") == {"hi": ROOM // 2, "lo": 20 - ROOM // 2}
    assert await flood(fair, other, 1, "hi") == {"hi": 1}


@pytest.mark.parametrize("most", [8, 16, 32])
async def test_a_flood_leaves_places_of_a_queue_that_is_smaller_than_the_usual_room(
    nats: NatsServer, tmp_path: Path, most: int
) -> None:
    mine, other = key(), key()
    async with rig(nats.url, tmp_path) as front:
        await front.publish(model(limits=limits(max_queue=most)), mine, other)
        statuses = []
        for _ in range(most + 1):
            statuses.append((await submit(front, mine)).status)
            await counted(front, statuses.count(202))
        assert set(statuses) == {202, 429}
        assert (await submit(front, other)).status == 202


async def test_a_flood_fills_the_queue_for_itself_alone(fair: Rig) -> None:
    mine, other = key(), key()
    await fair.publish(model(limits=limits(max_queue=80)), mine, other)
    accepted = await flood(fair, mine, 72)
    assert accepted == {"mid": ROOM // 2, "lo": 72 - ROOM // 2}
    for priority in ("mid", "lo"):
        refused = await submit(fair, mine, priority)
        assert (refused.status, refused.doc["code"], refused.doc["limit"]) == (429, "queue_full", 72)
    assert (await submit(fair, other)).status == 202


async def test_without_room_everything_goes_where_it_was_asked_to(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path, request_timeout_s=20.0, fair_room=0) as front:
        mine = key()
        await front.publish(model(limits=limits(max_queue=40)), mine)
        assert await flood(front, mine, 40) == {"mid": 40}


async def test_the_keys_of_one_account_have_one_share_together(fair: Rig) -> None:
    first, second, other = key(account_id="shop"), key(account_id="shop"), key(account_id="ward")
    await fair.publish(model(), first, second, other)
    assert await flood(fair, first, ROOM // 4) == {"mid": ROOM // 4}
    assert await flood(fair, second, ROOM) == {"mid": ROOM // 4, "lo": ROOM - ROOM // 4}
    assert await flood(fair, first, 1) == {"lo": 1}
    assert await flood(fair, other, 1) == {"mid": 1}


async def test_through_a_flood_a_job_waits_behind_the_room_and_the_jobs_in_flight(
    nats: NatsServer, fair: Rig, tmp_path: Path
) -> None:
    mine, other = key(), key()
    path = str(lightworker.version("slow"))
    versions = (Version(version=1, path=path, signatures={"serving_default": SECONDS}),)
    busy = model("busy", versions=versions, batching=Batching(max_size=1))
    await fair.publish(busy, mine, other)
    ledger = await Ledger(fair.bus).start()
    body = {"model": "busy", "input": {"seconds": [0.02]}}
    async with WorkerProcess(nats.url, tmp_path, "w1", program=lightworker.PROGRAM):
        loaded = await fair.call("POST", "/v1/jobs", body, key=mine, headers={"Prefer": "wait=100"})
        assert loaded.status == 200
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(fair.call("POST", "/v1/jobs", body, key=mine)) for _ in range(300)]
        print("the flood's classes:", Counter(call.result().doc["priority"] for call in calls))
        ahead = [await ends_before(fair, ledger, body, other) for _ in range(8)]
        found = await delivery.find_all(fair.bus, "busy", 0)
    print("ended before it:", ahead)
    assert found["lo"].num_pending > 2 * (ROOM + IN_FLIGHT), "the flood was over before the test was"
    assert max(ahead) <= ROOM + IN_FLIGHT


async def ends_before(front: Rig, ledger: Ledger, body: object, by: Key) -> int:
    """Submit one job and wait for its end: how many others ended between its acceptance and that."""
    sent = await front.call("POST", "/v1/jobs", body, key=by)
    assert (sent.status, sent.doc["priority"]) == (202, "mid")
    info = await front.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}")
    await ledger.ended(sent.doc["id"], timeout_s=60)
    latest = await front.bus.list_latest(Stream.STATE, [names.RECORDS])
    ends = {
        stored.subject: stored.seq
        for stored in latest
        if decode(Record, stored.headers[Header.RECORD]).state.is_terminal
    }
    mine = ends[names.state(sent.doc["id"])]
    return sum(info["state"]["last_seq"] < seq < mine for seq in ends.values())
