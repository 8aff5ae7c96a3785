"""Cancelling against claiming and completing: what a client was told stays true."""

import asyncio
import collections
import random

from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.program.errors import StaleRevision
from signalbox.wire import tensors
from signalbox.wire.messages import Job, State, decode
from signalbox.wire.names import Header
from tests.rigs.gateway import Key, Reply, Rig

BODY = {"model": "half", "input": {"x": [1.0]}}
RACES = 520
AT_ONCE = 40


class Runner:
    """Claims a job and commits it as workers do: each write from the revision before, cancelled if asked."""

    def __init__(self, front: Rig, job: Job) -> None:
        self._records = Records(front.bus)
        self._job = job
        self._revision = 0

    async def claim(self) -> bool:
        record = life.claimed(self._job, None, worker="w", gpu="g", token=1, now=self._job.created_at)
        try:
            self._revision = await self._records.write(record, expect=0)
        except StaleRevision:
            return False
        return True

    async def finish(self) -> None:
        while True:
            found = await self._records.read(self._job.id)
            assert found is not None
            record, revision, _ = found
            now = self._job.created_at + 1
            ended = (
                life.cancelled(record, now=now)
                if record.cancel_requested
                else life.succeeded(record, now=now, batch=1, size_bytes=0, ref=None)
            )
            try:
                await self._records.write(ended, tensors.encode([]), expect=revision)
            except StaleRevision:
                continue
            return


async def submitted(front: Rig, mine: Key) -> Job:
    got = await front.call("POST", "/v1/jobs", BODY, key=mine)
    assert got.status == 202
    stored = await Records(front.bus).queued(got.doc["id"])
    assert stored is not None
    return decode(Job, stored.headers[Header.JOB])


async def cancel(front: Rig, mine: Key, job: Job) -> Reply:
    return await front.call("POST", f"/v1/jobs/{job.id}/cancel", key=mine)


async def race(front: Rig, mine: Key, order: str, rng: random.Random) -> tuple[int, str, str]:
    """One job run and cancelled in the given order: the answer's status and state, and the final state."""
    job = await submitted(front, mine)
    runner = Runner(front, job)

    async def run() -> None:
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)
        if await runner.claim():
            for _ in range(rng.randrange(30)):
                await asyncio.sleep(0)
            await runner.finish()

    async def stop() -> Reply:
        for _ in range(rng.randrange(60)):
            await asyncio.sleep(0)
        return await cancel(front, mine, job)

    if order == "first":
        got = await stop()
        await run()
    elif order == "between":
        assert await runner.claim()
        got = await stop()
        await runner.finish()
    elif order == "last":
        await run()
        got = await stop()
    else:
        got, _ = await asyncio.gather(stop(), run())
    final = await front.call("GET", f"/v1/jobs/{job.id}", key=mine)
    state = str(got.doc.get("state", ""))
    assert (await front.call("GET", f"/v1/jobs/{job.id}", key=mine)).doc["state"] == final.doc["state"]
    return got.status, state, str(final.doc["state"])


async def test_five_hundred_races_of_cancel_and_completion_break_no_word(front: Rig, mine: Key) -> None:
    rng = random.Random(11)
    orders = ["first", "between", "last", *["together"] * 10] * (RACES // 13)
    seen: collections.Counter[tuple[int, str, str]] = collections.Counter()
    for start in range(0, len(orders), AT_ONCE):
        async with asyncio.TaskGroup() as group:
            races = [group.create_task(race(front, mine, order, rng)) for order in orders[start : start + AT_ONCE]]
        seen.update(task.result() for task in races)
    assert sum(seen.values()) == len(orders) >= 500
    assert set(seen) <= {
        (200, "cancelled", "cancelled"),  # it was queued, and no worker ever runs it
        (202, "running", "cancelled"),  # its worker was asked, and ended it as cancelled
        (409, "succeeded", "succeeded"),
    }, seen
    assert len(seen) == 3


async def test_cancelling_twice_is_cancelling_once(front: Rig, mine: Key) -> None:
    job = await submitted(front, mine)
    first, again = await cancel(front, mine, job), await cancel(front, mine, job)
    assert (first.status, again.status) == (200, 200)
    assert first.doc["state"] == again.doc["state"] == State.CANCELLED


async def test_a_running_job_is_being_cancelled_until_its_worker_has_ended_it(front: Rig, mine: Key) -> None:
    job = await submitted(front, mine)
    runner = Runner(front, job)
    assert await runner.claim()
    replies = [await cancel(front, mine, job) for _ in range(2)]
    assert [got.status for got in replies] == [202, 202]
    assert replies[0].doc["phase"] == "being cancelled"
    await runner.finish()
    assert (await cancel(front, mine, job)).doc["state"] == "cancelled"
