"""What deleted jobs held goes bit by bit: no turn of the reconciler's is long, and none is remembered for too long."""

import time
from itertools import count

import pytest

from signalbox.bus.client import Bus
from signalbox.jobs import life, payloads
from signalbox.wire.messages import Job, Record
from signalbox.wire.names import Stream
from tests.rigs.submit import Ledger, floats
from workers.recovery import erasure as module
from workers.recovery.erasure import AGAIN_S, LONGEST_S, Erasure


def tombstone(job: Job) -> Record:
    running = life.claimed(job, None, worker="w", gpu="g", token=1, now=time.time())
    return life.deleted(life.succeeded(running, now=time.time(), batch=1, size_bytes=3), now=time.time())


async def stored(bus: Bus) -> int:
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.PAYLOADS}")
    return int(info["state"]["messages"])


async def test_a_turn_over_large_results_ends_in_time_and_the_next_ones_go_on(bus: Bus) -> None:
    ledger = Ledger(bus)
    ticks = count(step=LONGEST_S / 2)
    erasure = Erasure(bus, clock=lambda: time.time() + next(ticks))
    others = await stored(bus)
    for seq in range(20):
        job = ledger.job("half", floats(1.0))
        await payloads.store(bus, job.account_id, job.id, "out1", bytes(5 * 1024 * 1024))
        erasure.deleted(tombstone(job), seq)
    before = await stored(bus)
    turns = 0
    while turns == 0 or erasure.has_more:
        await erasure.turn()
        turns += 1
        left = await stored(bus)
        assert before - left <= 16 * module._MESSAGES, "of one group"
        assert left < before
        before = left
    assert before == others
    assert turns > 1
    assert len(erasure) == 20, "each is looked at once more"


async def test_a_crowd_of_deletions_does_not_keep_records_from_being_read(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 4)
    now = time.time()
    ledger, erasure = Ledger(bus), Erasure(bus, clock=lambda: now)
    for seq in range(10):
        erasure.deleted(tombstone(ledger.job("half", floats(1.0))), seq)
    await erasure.turn()
    await erasure.turn()
    assert len(erasure) == 4
    assert erasure.lowest(100) == 6, "the oldest were looked at twice"
    now += AGAIN_S
    await erasure.turn()
    assert len(erasure) == 0
