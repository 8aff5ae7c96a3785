"""JOBS read singly, as where very many wait, against what a consumer gives."""

import random
import time
from typing import Any

import pytest

from signalbox.bus.client import Bus, Delivery, Stored
from signalbox.jobs.message import remove
from signalbox.wire import names
from signalbox.wire.names import Stream
from tests.rigs.submit import Ledger, floats
from workers.recovery import queued
from workers.recovery.queued import is_deep, walk_jobs


class Reader:
    """Reads JOBS in both ways."""

    def __init__(self, bus: Bus, patch: pytest.MonkeyPatch) -> None:
        self._bus = bus
        self._patch = patch

    async def jobs(self) -> dict[str, Any]:
        return await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")

    async def read(self, seq: int, limit: int, *, singly: bool, before: int = 0) -> tuple[list[Any], int]:
        """What is found, and where to go on. before: the sequence that is not taken."""
        self._patch.setattr(queued, "DEEP", 0 if singly else 1_000_000)
        jobs = await self.jobs()
        assert is_deep(jobs) == singly
        found: list[Any] = []

        def visit(message: Delivery | Stored) -> bool:
            if message.seq == before:
                return False
            assert message.time == pytest.approx(time.time(), abs=60.0)
            found.append((message.subject, message.seq, message.job))
            return True

        return found, await walk_jobs(self._bus, jobs, seq, limit, visit)


@pytest.fixture
def reader(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(bus, monkeypatch)


async def filled(bus: Bus, ledger: Ledger, number: int) -> list[int]:
    """Jobs; returns their sequences."""
    for _ in range(number):
        await ledger.submit("half", floats(1.0))
    info = await bus.request_json(
        f"$JS.API.STREAM.INFO.{Stream.JOBS}", {"subjects_filter": names.jobs_of_model("half")}
    )
    return list(range(info["state"]["first_seq"], info["state"]["last_seq"] + 1))


@pytest.mark.parametrize("seed", range(4))
async def test_the_same_is_found_singly_whatever_is_gone(bus: Bus, ledger: Ledger, reader: Reader, seed: int) -> None:
    chance = random.Random(seed)
    seqs = await filled(bus, ledger, 600)
    hole = chance.randrange(300)
    gone = {*seqs[hole : hole + 280], *chance.sample(seqs, 100)} - {seqs[-1]}
    for seq in gone:
        await remove(bus, seq)
    left = [seq for seq in seqs if seq not in gone]
    for start, limit in ((0, 1000), (left[-1], 5), (chance.choice(seqs), chance.randrange(1, 300)), (seqs[0], 257)):
        expected, after = await reader.read(start, limit, singly=False)
        found, following = await reader.read(start, limit, singly=True)
        assert found == expected, (start, limit)
        assert [seq for seq in left if seq >= following] == [seq for seq in left if seq >= after]
    assert await reader.read(seqs[-1] + 1, 10, singly=True) == ([], seqs[-1] + 1), "the end"
    before = left[len(left) // 2]
    found, following = await reader.read(0, 1000, singly=True, before=before)
    assert [each[1] for each in found] == [seq for seq in left if seq < before]
    assert following <= before


async def test_one_walk_is_bounded_by_number_and_bytes(
    bus: Bus, ledger: Ledger, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    seqs = await filled(bus, ledger, 600)
    monkeypatch.setattr(queued, "MOST_SINGLY", 10)
    found, following = await reader.read(0, 20, singly=True)
    assert (len(found), following) == (10, seqs[10])
    monkeypatch.setattr(queued, "MOST_SINGLY", 1000)
    monkeypatch.setattr(queued, "MOST_BYTES", 1)
    found, following = await reader.read(0, 1000, singly=True)
    assert (len(found), following) == (256, seqs[256]), "no part more"
