"""What is kept for callers has a bound: results a least time, Idempotency-Keys a share for each account."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway_plugin.admission.refusals import REFUSED
from signalbox.bus import table
from signalbox.jobs.records import Records
from signalbox.wire import names
from signalbox.wire.keydocs import Share
from signalbox.wire.messages import State
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.tensors import Tensor
from tests.integration.gateway_plugin.test_gateway_stored_inputs import Ends, shrink
from tests.rigs import gateway
from tests.rigs.gateway import Key, Reply, Rig, ScriptedWorker, holds, key, limits, model
from tests.rigs.natsserver import NatsServer
from tests.rigs.presence import presence
from tests.rigs.workerprocess import WorkerProcess
from workers.recovery.reconciler import JobReconciler

SMALL = {"model": "half", "inputs": {"x": [1.0]}}


def wide(_: object) -> list[Tensor]:
    """A result of 8 KB."""
    return [Tensor("y", "float32", (2048,), bytes(8192))]


@pytest.fixture
async def rig(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    async with gateway.rig(nats.url, tmp_path) as made:
        await made.publish(model("half", limits=limits(max_queue=10_000)))
        yield made


async def submit(rig: Rig, whose: Key, name: str = "") -> Reply:
    headers = {"Idempotency-Key": name} if name else {}
    return await rig.call("POST", "/v1/jobs", SMALL, key=whose, headers=headers)


async def test_a_neighbour_s_jobs_take_no_result_away_and_acceptance_stops_instead(rig: Rig) -> None:
    await shrink(rig.bus, Stream.STATE, max_bytes=4 * 1024 * 1024)
    ours, theirs = key(), key()
    await rig.publish(ours, theirs)
    async with Ends(rig.bus) as ends, ScriptedWorker(rig.bus, "half", wide):
        first = (await submit(rig, ours)).doc["id"]
        assert await ends.of(first) is State.SUCCEEDED
        taken = []
        while (reply := await submit(rig, theirs)).status == 202:
            taken.append(reply.doc["id"])
            assert await ends.of(taken[-1]) is State.SUCCEEDED
        assert reply.status == 503
        assert "no room for the results of more jobs" in reply.doc["detail"]
        assert int(reply.headers["Retry-After"]) >= 1
        assert (await rig.call("GET", f"/v1/jobs/{first}", key=ours)).doc["result"]
        for job_id in taken:
            assert (await rig.call("GET", f"/v1/jobs/{job_id}", key=theirs)).status == 200
        reconciler = JobReconciler(
            rig.bus,
            Records(rig.bus),
            workers=list,
            models=dict,
            worker="w",
            boot="w",
            clock=lambda: time.time() + 900,
            outlives_s=0.0,
        )
        await reconciler.turn()
        async with asyncio.timeout(60):
            while (await submit(rig, ours)).status != 202:
                pass


async def test_whose_results_take_the_room_is_refused_and_a_neighbour_is_not(
    nats: NatsServer, rig: Rig, tmp_path: Path
) -> None:
    """The worker tells what it has stored for whom."""
    await shrink(rig.bus, Stream.STATE, max_bytes=512 * 1024)
    ours, theirs = key(), key(account_id="theirs")
    await rig.publish(ours, theirs)
    toys = WorkerProcess(nats.url, tmp_path, "w1", program="verification.chaos.rig.toyworker", worker_presence_s=0.1)
    async with toys, Ends(rig.bus) as ends:
        taken, reply = [], await submit(rig, theirs)
        while reply.status == 202:
            taken.append(reply.doc["id"])
            assert await ends.of(taken[-1]) is State.SUCCEEDED
            if len(taken) % 30 == 0:
                await holds(rig.gateway._workers, lambda: reported(rig, "theirs") > 600 * len(taken))
            reply = await submit(rig, theirs)
        assert reply.status == 429, reply.doc
        assert "those of your jobs" in reply.doc["detail"]
        assert int(reply.headers["Retry-After"]) >= 1
        for _ in range(5):
            accepted = await submit(rig, ours)
            assert await ends.of(accepted.doc["id"]) is State.SUCCEEDED
        assert (await submit(rig, theirs)).status == 429


def reported(rig: Rig, account: str) -> int:
    """Bytes of an account's results that workers tell of."""
    workers = rig.gateway._workers.items().values()
    return sum(worker.results.get(account, 0) for worker in workers)


@pytest.mark.parametrize(
    ("most", "held", "others"),
    [(0, 3_300_000, 0), (2_000_000, 2_100_000, 1_300_000), (0, 4_300_000, 10_000)],
    ids=["what is free", "the setting", "nothing is free"],
)
async def test_large_results_have_a_share_of_their_own(
    nats: NatsServer, tmp_path: Path, most: int, held: int, others: int
) -> None:
    """Of 10 MiB half of what may be filled, 4.2 MB, of which three quarters are taken, or all.

    most: the setting. An account whose own share is larger may have more.
    """
    worker = presence("w9", large_results={"theirs": held, "ours": others})
    async with gateway.rig(nats.url, tmp_path, max_results_bytes=most) as rig:
        await shrink(rig.bus, Stream.PAYLOADS, max_bytes=10 * 1024 * 1024)
        revision = await table.put(rig.bus, Bucket.WORKERS, "w9", worker, ttl_s=60)
        await gateway.reached(rig.gateway._workers, "w9", revision)
        ours, theirs = key(account_id="ours"), key(account_id="theirs")
        larger = key(account_id="theirs", share=Share(result_bytes=held))
        await rig.publish(model("half"), ours, theirs, larger)
        before = REFUSED.labels("account_results")._value.get()
        assert (await submit(rig, ours)).status == 202
        refused = await submit(rig, theirs)
        assert refused.status == 429
        assert str(held) in refused.doc["detail"]
        assert REFUSED.labels("account_results")._value.get() == before + 1
        assert [(await submit(rig, whose)).status for whose in (ours, larger)] == [202, 202]


async def test_an_account_has_its_share_of_remembered_keys(rig: Rig) -> None:
    ours = [key(account_id="ours", share=Share(idempotency_keys=3)) for _ in range(2)]
    theirs = key()
    await rig.publish(*ours, theirs)
    first = await submit(rig, ours[0], "order-0")
    assert [(await submit(rig, ours[1], f"order-{n}")).status for n in (1, 2)] == [202, 202]
    refused = await submit(rig, ours[1], "order-3")
    assert refused.status == 429
    assert "without Idempotency-Key" in refused.doc["detail"]
    assert (await submit(rig, ours[1], "order-0")).doc["id"] == first.doc["id"]
    assert (await submit(rig, ours[1])).status == 202
    assert (await submit(rig, theirs, "order-3")).status == 202
    await rig.bus.request_json(
        f"$JS.API.STREAM.PURGE.{Bucket.IDEM.stream}", {"filter": names.key(Bucket.IDEM, "ours.*")}
    )
    async with asyncio.timeout(60):
        while (await submit(rig, ours[0], "order-4")).status != 202:
            pass


async def test_counting_an_account_s_keys_reads_none_of_them(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = key(account_id="ours")
    await rig.publish(ours)
    for n in range(2):
        await submit(rig, ours, f"order-{n}")
    idempotency = rig.gateway._acceptance._idempotency
    ask, answers = rig.gateway._bus.request_json, []

    async def noted(*args: Any) -> Any:
        answers.append(await ask(*args))
        return answers[-1]

    monkeypatch.setattr(rig.gateway._bus, "request_json", noted)
    assert await idempotency._count("ours") == 2
    assert [answer["state"].get("subjects") for answer in answers] == [None]


async def test_when_no_more_keys_can_be_remembered_it_is_our_failure(rig: Rig) -> None:
    await shrink(rig.bus, Bucket.IDEM.stream, max_bytes=1000)
    ours = key()
    await rig.publish(ours)
    replies = [await submit(rig, ours, f"order-{n}") for n in range(6)]
    assert replies[0].status == 202
    assert replies[-1].status == 503
    assert (await submit(rig, ours)).status == 202


async def test_a_key_whose_job_may_have_been_forgotten_runs_nothing_again(rig: Rig) -> None:
    ours = key()
    await rig.publish(ours)
    async with Ends(rig.bus) as ends, ScriptedWorker(rig.bus, "half"):
        job_id = (await submit(rig, ours, "order-1")).doc["id"]
        await ends.of(job_id)
        for stream in (Stream.JOBS, Stream.STATE):
            await rig.bus.request_json(f"$JS.API.STREAM.PURGE.{stream}")
        for part in (rig.gateway._owned, rig.gateway._acceptance._idempotency):
            part._wall = lambda: time.time() + 900
        again = await submit(rig, ours, "order-1")
        assert again.status == 409
        assert again.doc["job_id"] == job_id
        assert "choose a new one" in again.doc["detail"]
        assert await Records(rig.bus).read(job_id) is None
