"""The disk of NATS is full for a moment under the whole of ``signalbox up``, with callers at the front."""

import asyncio
import json
import signal
from collections.abc import Iterator

import pytest

from signalbox.client import Client
from signalbox.program.errors import SignalboxError
from tests.e2e.upprocess import Up
from verification.chaos.environment.smalldisk import SmallDisk

CALLERS = 4
EVENT_S = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.fixture
def up(disk: SmallDisk) -> Iterator[Up]:
    started = Up(disk.folder.parent)
    try:
        started.wait_until_up()
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGINT)


class Load:
    """Callers who submit without end. accepted: the input of each job that was accepted, by its id."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._number = 0
        self.accepted: dict[str, float] = {}
        self.refused: list[SignalboxError] = []
        self._news = asyncio.Event()

    async def run(self) -> None:
        while True:
            self._number += 1
            value = float(self._number)
            try:
                job = await self._client.submit("half_plus_two", instances=[value])
                self.accepted[job.id] = value
            except SignalboxError as error:
                self.refused.append(error)
                await asyncio.sleep(0.02)
            self._news.set()

    async def more(self, *, accepted: int = 0, refused: int = 0) -> None:
        """Return when so many more have been accepted and refused."""
        wanted = len(self.accepted) + accepted, len(self.refused) + refused
        async with asyncio.timeout(EVENT_S):
            while len(self.accepted) < wanted[0] or len(self.refused) < wanted[1]:
                self._news.clear()
                await self._news.wait()


async def test_a_full_disk_is_over_without_a_person_and_every_accepted_job_ends_once(up: Up, disk: SmallDisk) -> None:
    facts = json.loads((up.data / "up.json").read_text())
    async with Client(facts["front"], facts["api_key"], connections=CALLERS + 1) as client:
        load = Load(client)
        callers = [asyncio.create_task(load.run()) for _ in range(CALLERS)]
        await load.more(accepted=50)
        disk.fill()
        await load.more(refused=5)
        # Callers are refused before NATS must write: this waits for the write that fails, of a worker's.
        await asyncio.to_thread(up.wait_for_line, "NATS cannot write to its disk")
        disk.free()
        await load.more(accepted=50)
        await asyncio.to_thread(up.wait_for_line, "NATS is back")
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert {type(error).code for error in load.refused} <= {"unavailable", "ambiguous"}
        for job, value in load.accepted.items():
            ended = await client.wait(job, timeout_s=EVENT_S)
            assert ended.state == "succeeded", ended
            assert ended.document["result"] == {"predictions": [value / 2 + 2]}
