"""A storm over 2 000 delayed jobs that come due at once: the worker that releases them is killed, and so is the next.

Three real workers with light runners on a real nats-server. Of no job there is no end, and none is queued twice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus, Message
from signalbox.jobs import delayed, payloads
from signalbox.jobs.records import Records
from signalbox.wire import names
from signalbox.wire.duties import LeaderLeaseRecord
from signalbox.wire.messages import State, decode
from signalbox.wire.names import RECONCILER, Bucket
from tests.rigs import lightworker
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerhouse import declared
from tests.rigs.workerprocess import WorkerProcess

NUMBER = 2_000
AT_ONCE = 64
DUE_IN_S = 25.0
KILLED_AT = 200, 900
"""Jobs queued when the worker that releases them is killed."""
pytestmark = pytest.mark.slow


class Storm:
    """Delayed jobs, all due at the same instant. queued: how often each was put into ``JOBS``."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        self.bus, self.ledger, self._records = bus, ledger, Records(bus)
        self.queued: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.due_at = time.time() + DUE_IN_S

    async def submit(self) -> None:
        await self.bus.subscribe("evt.jobs.>", self._on_message)
        left = iter(range(NUMBER))
        await asyncio.gather(*(self._submit(left) for _ in range(AT_ONCE)))
        assert time.time() < self.due_at, "nothing of the storm was due before all was accepted"

    async def _submit(self, left: Iterator[int]) -> None:
        for number in left:
            frame = floats(float(number))
            job = self.ledger.job("half", frame, not_before=self.due_at, deadline_at=self.due_at + 900.0)
            stored = await payloads.store_input(self.bus, job, frame)
            await delayed.accept(self.bus, self._records, replace(job, ref=stored.ref), now=time.time())
            self.ledger.submitted.append(job.id)

    def _on_message(self, message: Message) -> None:
        self.queued[names.job_of(message.subject)] += 1
        self._changed.set()

    async def until(self, number: int) -> None:
        async with asyncio.timeout(120):
            while len(self.queued) < number:
                self._changed.clear()
                await self._changed.wait()

    async def releases(self) -> str:
        """The worker that does it for all."""
        stored = await self.bus.leader_get(Bucket.DUTIES.stream, names.key(Bucket.DUTIES, RECONCILER))
        assert stored is not None
        return decode(LeaderLeaseRecord, stored.data).owner


async def test_a_storm_over_delayed_jobs_loses_none_and_queues_none_twice(tmp_path: Path) -> None:
    async with declared(tmp_path) as (url, bus):
        await register(bus, "half", lightworker.version("half"), replicas=3)
        storm = Storm(bus, await Ledger(bus).start())
        workers = {
            name: WorkerProcess(url, tmp_path, name, program=lightworker.PROGRAM, worker_device=f"cpu:{number}")
            for number, name in enumerate(("w1", "w2", "w3"))
        }
        async with workers["w1"], workers["w2"], workers["w3"]:
            for worker in workers.values():
                await worker.ready()
            await storm.submit()
            for number in KILLED_AT:
                await storm.until(number)
                await workers[await storm.releases()].kill()
            records = await storm.ledger.ended(timeout_s=240)
    assert Counter(record.state for record in records) == {State.SUCCEEDED: NUMBER}
    assert Counter(storm.queued.values()) == {1: NUMBER}
    assert set(storm.queued) == set(storm.ledger.submitted)


async def test_two_thousand_that_are_due_at_once_are_queued_within_twenty_seconds(tmp_path: Path) -> None:
    async with declared(tmp_path) as (url, bus):
        storm = Storm(bus, await Ledger(bus).start())
        async with WorkerProcess(url, tmp_path, "w1", program=lightworker.PROGRAM) as worker:
            await worker.ready()
            await storm.submit()
            await storm.until(NUMBER)
            took_s = time.time() - storm.due_at
    print(f"{NUMBER} delayed jobs were queued within {took_s:.1f} s of their time")
    assert took_s <= 20.0
