"""500 digits while two workers share one virtual GPU and its holder is killed every few seconds."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program.settings import Wire
from signalbox.wire import messages, tensors
from signalbox.wire.messages import Batching, State
from signalbox.wire.names import Bucket
from signalbox.wire.tensors import Tensor
from tests.rigs import models
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import emptied
from tests.rigs.submit import Ledger, floats, read_floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.chaos.evidence import intervals

DIGITS = 500
KILLS = 6
EVERY = 5
"""After so many digits one slow job is submitted, so that a kill finds a running job."""
ENDED = 20
"""So many jobs end between two kills at least."""


@pytest.fixture
async def admin(own_nats: NatsServer) -> AsyncIterator[Bus]:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    yield bus
    await bus.close()


class Holders:
    """Who holds the GPU, as the lease bucket tells."""

    def __init__(self, bus: Bus) -> None:
        self.table = Table(bus, Bucket.LEASES, messages.Lease)
        self.history: list[tuple[float, str, int]] = []
        self._changed = asyncio.Event()
        self.table.on_change(self._note)

    def _note(self, _key: str, lease: messages.Lease | None, revision: int) -> None:
        if lease is not None and lease.state == "HELD":
            token = lease.token or revision
            if not self.history or self.history[-1][2] != token:
                self.history.append((time.monotonic(), lease.owner, token))
                self._changed.set()

    async def after(self, token: int, *, timeout_s: float = 60.0) -> tuple[float, str, int]:
        """The first holder with a newer token."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = next((entry for entry in self.history if entry[2] > token), None)
                if found is not None:
                    return found
                self._changed.clear()
                await self._changed.wait()


def images(*pixels: list[list[int]]) -> bytes:
    """The frame of digits: ``image [n, 8, 8] float32``."""
    flat = [float(pixel) for image in pixels for row in image for pixel in row]
    data = struct.pack(f"<{len(flat)}f", *flat)
    return tensors.encode([Tensor("image", "float32", (len(pixels), 8, 8), data)])


def read_labels(frame: bytes) -> list[int]:
    """The labels of a result, ``[n] int64``."""
    found = {t.name: t for t in tensors.decode(frame)}["label"]
    return list(struct.unpack(f"<{len(found.data) // 8}q", found.data))


class Storm:
    """Submits the jobs bit by bit and knows what each of them must give.

    digits: job ids and the index of the image each carries. slow: job ids and seconds.
    """

    def __init__(self, bus: Bus, held_out: models.Digits) -> None:
        self.ledger = Ledger(bus)
        self.digits: dict[str, int] = {}
        self.slow: dict[str, float] = {}
        self._held_out = held_out

    async def submit(self, number: int) -> None:
        """``number`` digits more, a slow job after every few of them."""
        for _ in range(number):
            index = len(self.digits) % len(self._held_out.images)
            job_id = await self.ledger.submit("digits", images(self._held_out.images[index]))
            self.digits[job_id] = index
            if len(self.digits) % EVERY == 0:
                seconds = (len(self.slow) % 4 + 1) / 20
                self.slow[await self.ledger.submit("steady", floats(seconds, name="seconds"))] = seconds

    @property
    def ended(self) -> int:
        """How many have ended."""
        return len(self.ledger.submitted) - len(self.ledger.open(self.ledger.submitted))

    def running(self, worker: str) -> list[str]:
        """Jobs that the worker runs, by their records."""
        lasts = (self.ledger.last(job_id) for job_id in self.ledger.submitted)
        return [r.id for r in lasts if r and r.state is State.RUNNING and r.worker == worker]

    async def until_busy(self, worker: str) -> list[str]:
        """Wait until jobs have ended since this call and the worker runs some; their ids."""
        goal = self.ended + ENDED
        await self.ledger.until(lambda: self.ended >= goal and self.running(worker), timeout_s=60)
        return self.running(worker)


@pytest.mark.slow
async def test_500_digits_survive_holders_that_are_killed_again_and_again(
    own_nats: NatsServer, admin: Bus, tmp_path: Path
) -> None:
    held_out = models.digits()
    storm = Storm(admin, held_out)
    ledger = await storm.ledger.start()
    holders = Holders(admin)
    await holders.table.start()
    await register(admin, "digits", held_out.path, batching=Batching(max_size=8, rows_independent=True))
    await register(admin, "steady", models.slow(), batching=Batching(max_size=1))
    async with AsyncExitStack() as stack:
        workers: dict[str, WorkerProcess] = {}

        async def start(name: str) -> None:
            # No voluntary hand-over meanwhile, so that the holder is known when it is killed.
            process = WorkerProcess(own_nats.url, tmp_path, name, worker_quantum_s=600, worker_idle_s=600)
            workers[name] = await stack.enter_async_context(process)
            await workers[name].said("runner.ready")

        await asyncio.gather(start("w1"), start("w2"))
        _, holder, token = await holders.after(0, timeout_s=60)
        # In calm weather: every distinct image once, in one run.
        calm = await Ledger(admin).start()
        rows = len(held_out.images)
        calm_id = await calm.submit("digits", images(*held_out.images), rows=rows)
        await calm.ended()
        expected = read_labels(await calm.result(calm_id))
        takeovers: list[float] = []
        interrupted: list[list[str]] = []
        for kill in range(KILLS):
            left = (DIGITS - len(storm.digits)) // (KILLS - kill)
            await storm.submit(left // 2)
            interrupted.append(await storm.until_busy(holder))
            killed_at = time.monotonic()
            await workers[holder].kill()
            dead = holder
            # Half of the jobs come while no worker holds the GPU or its new holder is only beginning.
            (at, holder, token), _ = await asyncio.gather(holders.after(token), storm.submit(left - left // 2))
            takeovers.append(at - killed_at)
            assert holder != dead
            await start(dead)
        records = await ledger.ended(timeout_s=90)
        await emptied(admin)
        print("take-overs:", [round(s, 3) for s in takeovers])
        assert max(takeovers) < 2.0
    assert (len(storm.digits), len(records)) == (DIGITS, DIGITS + len(storm.slow))
    # Each job succeeded, with its own result, and got exactly one terminal record.
    for job_id in ledger.submitted:
        states = [r.state for r in ledger.records[job_id]]
        assert [s for s in states if s.is_terminal] == [State.SUCCEEDED], (job_id, states)
    labels = {i: read_labels(await ledger.result(i)) for i in storm.digits}
    assert labels == {i: [expected[index]] for i, index in storm.digits.items()}
    right = sum(labels[i] == [held_out.labels[index]] for i, index in storm.digits.items())
    print(f"right: {right} of {DIGITS}")
    assert right >= 0.95 * DIGITS
    for job_id, seconds in storm.slow.items():
        assert read_floats(await ledger.result(job_id)) == pytest.approx((seconds,))
    # The kills did cut runs short, except where a commit was just on its way; no job gets a strike for it.
    again = {r.id for r in records if r.attempt > 1}
    cut = [len(again.intersection(ids)) for ids in interrupted]
    print("attempts cut short:", cut)
    assert sum(map(bool, cut)) > KILLS // 2, cut
    assert max(r.strikes for r in records) == 0
    lines = intervals.read(tmp_path / "intervals.log")
    assert len({line.pid for line in lines if line.kind == "in"}) > KILLS
    assert intervals.violations(lines) == []
