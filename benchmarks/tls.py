"""``python -m benchmarks.tls``: what TLS to and between three nodes of NATS costs, accepted jobs being written.

The same writes as an asynchronous submit's (grouped, three copies, synced), plain and encrypted in turn, on the loop
that the programs run on.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.rig.processes import cost
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops.ports import HOST, free_port
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.names import Stream
from tests.rigs.natsserver import NatsServer

MAKE: Final = Path(__file__).resolve().parents[1] / "deploy" / "make_secrets.py"
BODY: Final = bytes(1024)
IN_FLIGHT: Final = (1, 32, 128)
READY_S: Final = 60.0


def main() -> None:
    """Rounds of plain and encrypted, in turn; the median of each figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="per figure (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind (%(default)s)")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(given.seconds, given.rounds))


async def measure(seconds: float, rounds: int) -> None:
    """Prints jobs per second, p50 and processor seconds per 1000 jobs of nodes and client."""
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as name:
        folder = Path(name)
        certificates = folder / "secrets"
        argv = [sys.executable, str(MAKE), "--folder", str(certificates)]
        await asyncio.to_thread(subprocess.run, argv, check=True, stdout=subprocess.DEVNULL)
        for number in range(rounds):
            for kind, secrets in (("plain", None), ("TLS", certificates)):
                async with cluster(folder / f"{kind}{number}", secrets) as (bus, servers):
                    for in_flight in IN_FLIGHT:
                        figures = await submit(bus, servers, in_flight, seconds)
                        found.setdefault((kind, in_flight), []).append(figures)
    _print(found)


def _print(found: Mapping[tuple[str, int], list[tuple[float, ...]]]) -> None:
    print(f"{'':6} {'in flight':>9} {'jobs/s':>8} {'p50 ms':>7} {'nodes CPU':>10} {'client CPU':>10}  of runs")
    for (kind, in_flight), runs in sorted(found.items(), key=lambda one: (one[0][1], one[0][0])):
        rate, p50, nodes, client = (statistics.median(one) for one in zip(*runs, strict=True))
        each = ", ".join(f"{run[0]:.0f}" for run in runs)
        print(f"{kind:6} {in_flight:9} {rate:8.0f} {p50 * 1000:7.2f} {nodes:10.2f} {client:10.2f}  {each}")


async def submit(bus: Bus, servers: list[NatsServer], in_flight: int, seconds: float) -> tuple[float, ...]:
    """Jobs per second, their median time, and processor seconds per 1000 of them: the nodes', ours."""
    jobs, times = bus.grouped(Stream.JOBS), list[float]()
    end = time.perf_counter() + seconds

    async def one() -> None:
        while (began := time.perf_counter()) < end:
            await jobs.write(names.job("bench", "mid", "bench", str(uuid.uuid4())), BODY, expect=0)
            times.append(time.perf_counter() - began)

    pids = [server.pid for server in servers]
    before, ours = sum(cost(pid).cpu_s for pid in pids), cost(os.getpid()).cpu_s
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one())
    took = time.perf_counter() - start
    spent = sum(cost(pid).cpu_s for pid in pids) - before
    thousands = len(times) / 1000
    return (
        len(times) / took,
        statistics.median(times),
        spent / thousands,
        (cost(os.getpid()).cpu_s - ours) / thousands,
    )


@asynccontextmanager
async def cluster(folder: Path, secrets: Path | None) -> AsyncIterator[tuple[Bus, list[NatsServer]]]:
    """Three nodes with the topology in three copies, encrypted where there are certificates."""
    routes = [free_port() for _ in range(3)]
    peers = ", ".join(f'"nats://{HOST}:{route}"' for route in routes)
    servers = []
    for number, route in enumerate(routes, 1):
        tls = ""
        if secrets is not None:
            home = secrets / "tls" / f"nats-{number}"
            tls = f'cert_file: "{home}/node.pem", key_file: "{home}/node.pem", min_version: "1.3"'
        mutual = f'tls {{ {tls}, ca_file: "{secrets}/tls_ca", verify: true }}, ' if tls else ""
        servers.append(
            NatsServer(
                folder / str(number),
                name=f"n{number}",
                tls=tls,
                start_timeout_s=READY_S,
                cluster=f"name: bench, listen: {HOST}:{route}, no_advertise: true, {mutual}routes: [{peers}]",
            )
        )
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        bus = await Bus.connect(
            Wire(
                nats_url=",".join(server.url for server in servers),
                connect_timeout_s=READY_S,
                nats_ca_file=str(secrets / "tls_ca") if secrets else "",
            ),
            role="admin",
        )
        stack.push_async_callback(bus.close)
        await _applied(bus)
        yield bus, servers


async def _applied(bus: Bus) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            try:
                await topology.apply(bus, replicas=3)
            except SignalboxError:
                await asyncio.sleep(0.2)  # leaders are elected
            else:
                return


if __name__ == "__main__":
    main()
