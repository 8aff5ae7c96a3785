"""``python -m verification.chaos.quorum``: does a queue of three copies outlive the power of all its nodes?

Nothing of ours runs but the bus: three nats-servers, each on a disk of its own, a work queue as plain as one can be, a
few who put jobs in and one who takes them and removes them. Leaders step down and nodes are killed for some seconds,
then the power of all three is cut at one instant. ``SIGNALBOX_NATS_BIN`` names the nats-server. Exits with 1 where the
queue got no leader, or one that has not what was stored (ADR 0144). Needs root, as
:mod:`verification.chaos.environment.disk` does.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from signalbox.bus.client import Bus
from signalbox.ops.natsserver import binary
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire.assets import Config
from tests.rigs.natsserver import NatsServer
from tests.rigs.nodes import nodes, started
from tests.rigs.outage import becomes
from verification.chaos.environment.disk import Disk, reason_against
from verification.chaos.faults.power import blackout

NODES: Final = 3
CALLERS: Final = 4
AT_ONCE: Final = 20
LONGEST_RUN_S: Final = 0.1
BUSY_S: Final = 0.01
QUIET_S: Final = 0.2
"""Longest pause of a caller between two jobs."""
CUTS_A_LIFE: Final = 10
"""Cuts that one cluster goes through before another takes its place."""
LED_S: Final = 60.0
"""An election takes five to eleven seconds; a stream without a leader by then waits for data no node has."""
QUEUE: Final = "QUEUE"
STREAM: Final[Config] = {"name": QUEUE, "subjects": ["queue"], "storage": "file", "num_replicas": NODES}


class Cluster:
    """Three nodes and a queue in use. queued: sequences stored. done: taken."""

    def __init__(self, bus: Bus, servers: list[NatsServer], disks: list[Disk], seed: str) -> None:
        self.bus, self.servers, self.disks = bus, servers, disks
        self.rng = random.Random(seed)
        self.queued: set[int] = set()
        self.done: set[int] = set()
        self.longest_s = BUSY_S
        self.is_over = False

    async def queue(self) -> None:
        """One caller: the next job soon after the last is in."""
        while not self.is_over:
            try:
                self.queued.add(await self.bus.write("queue", bytes(self.rng.randint(50, 3000))))
            except SignalboxError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(self.rng.uniform(0, self.longest_s))

    async def take(self) -> None:
        """The one worker: it takes a batch, is busy with it for a while and removes all of it."""
        while True:
            try:
                batch = await self._batch()
                await asyncio.sleep(self.rng.uniform(0, LONGEST_RUN_S))
                self.done.update(batch)
                if batch:
                    await self.bus.request_json(f"$JS.API.STREAM.PURGE.{QUEUE}", {"seq": max(batch) + 1})
            except SignalboxError:
                await asyncio.sleep(0.1)

    async def _batch(self) -> list[int]:
        """Sequences of the first jobs that there are."""
        batch: list[int] = []
        while len(batch) < AT_ONCE:
            ask = {"seq": batch[-1] + 1 if batch else 1, "next_by_subj": "queue"}
            try:
                found = await self.bus.request_json(f"$JS.API.STREAM.MSG.GET.{QUEUE}", ask)
            except NotFound:
                break
            batch.append(int(found["message"]["seq"]))
        return batch

    async def unrest(self) -> None:
        """Some seconds in which leaders step down and nodes are killed."""
        for _ in range(self.rng.randint(3, 10)):
            self.longest_s = self.rng.choice((BUSY_S, QUIET_S))
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            drawn = self.rng.random()
            if drawn < 0.35:
                with suppress(SignalboxError):
                    await self.bus.request_json(f"$JS.API.STREAM.LEADER.STEPDOWN.{QUEUE}")
            elif drawn < 0.5:
                node = self.rng.choice(self.servers)
                await node.kill()
                await asyncio.sleep(self.rng.uniform(0.1, 1.5))
                await node.start()

    async def power_cut(self) -> None:
        """All nodes at one instant, and power again."""
        await blackout(self.servers, self.disks)
        for disk in self.disks:
            await asyncio.to_thread(disk.put_back)
        await started(self.servers)

    async def is_led(self) -> bool:
        """Whether the queue has a leader that answers."""
        with suppress(SignalboxError):
            info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{QUEUE}")
            return bool(info["cluster"].get("leader"))
        return False


@asynccontextmanager
async def cluster(folder: Path, seed: str) -> AsyncIterator[Cluster]:
    """A new one, with callers and a worker, and its queue led."""
    async with AsyncExitStack() as stack:
        folders = [folder / f"n{number}" for number in range(NODES)]
        disks = [stack.enter_context(Disk(each)) for each in folders]
        servers = nodes(folders)
        for server in servers:
            stack.push_async_callback(server.kill)
        await started(servers)
        urls = ",".join(server.url for server in servers)
        bus = await Bus.connect(Wire(nats_url=urls, request_timeout_s=5.0), role="admin")
        stack.push_async_callback(bus.close)
        made = Cluster(bus, servers, disks, seed)
        await becomes(lambda: _declared(bus), limit_s=LED_S)
        await becomes(made.is_led, limit_s=LED_S)
        tasks = [asyncio.create_task(made.queue()) for _ in range(CALLERS)]
        tasks.append(asyncio.create_task(made.take()))
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _declared(bus: Bus) -> bool:
    with suppress(SignalboxError):
        await bus.request_json(f"$JS.API.STREAM.CREATE.{QUEUE}", STREAM)
        return True
    return False


async def live(folder: Path, cuts: int, seed: str) -> tuple[int, int, str]:
    """``(cuts, jobs, what went wrong)`` of one cluster: so many cuts, fewer where it has no leader after one."""
    async with cluster(folder, seed) as made:
        for number in range(1, cuts + 1):
            await made.unrest()
            await made.power_cut()
            try:
                await becomes(made.is_led, limit_s=LED_S)
            except AssertionError:
                left = len(made.queued - made.done)
                return number, len(made.queued), f"no leader; {left} jobs locked in"
        made.is_over = True

        async def is_empty() -> bool:
            return made.queued <= made.done

        try:
            await becomes(is_empty, limit_s=LED_S)
        except AssertionError:
            return cuts, len(made.queued), f"{len(made.queued - made.done)} jobs lost"
        return cuts, len(made.queued), ""


async def play(cuts: int, seed: int) -> int:
    """So many cuts, over as many clusters as it takes; how many clusters ended badly."""
    cut = jobs = life = 0
    bad: list[str] = []
    while cut < cuts:
        with tempfile.TemporaryDirectory(prefix="quorum-") as folder:
            most = min(CUTS_A_LIFE, cuts - cut)
            more, queued, wrong = await live(Path(folder), most, f"{seed} {life}")
        cut, jobs, life = cut + more, jobs + queued, life + 1
        bad += [wrong] if wrong else []
        print(f"{cut} cuts, {jobs} jobs; {wrong or 'all there'}", flush=True)
    print(f"{_version()}: {len(bad)} of {cut} cuts ended badly: {'; '.join(bad) or 'none'}")
    return len(bad)


def _version() -> str:
    return subprocess.run((binary(), "-v"), check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m verification.chaos.quorum", description=__doc__)
    parser.add_argument("--cuts", type=int, default=20, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of faults and load (%(default)s)")
    asked = parser.parse_args()
    if why := reason_against():
        parser.error(why)
    log.configure("ERROR", program="quorum")
    return 1 if asyncio.run(play(asked.cuts, asked.seed)) else 0


if __name__ == "__main__":
    sys.exit(main())
