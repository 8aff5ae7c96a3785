"""Scenarios in which NATS, or a worker's way to it, is away under load: what callers see, and what is true after."""

import asyncio
import itertools
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from tests.rigs.processes import is_alive
from verification.chaos.environment import link
from verification.chaos.evidence.journal import now
from verification.chaos.faults import power as powers
from verification.chaos.faults.fault import Strike, measured, struck
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios.scene import (
    beats,
    finished,
    loaded,
    longest_silence,
    more_accepted,
    note_fenced,
    refused,
    say,
    settled,
)
from verification.chaos.traffic.load import Load

LEADERS: Final = ("KV_leases", "STATE", "JOBS")
FENCE_S: Final = 15.0
"""From the last thing a holder heard of NATS to its runner's end: promised."""
SERVING_BOUND_S: Final = 60.0
STOP_S: Final = 12.0
"""The others elect a leader within this (4 to 9 s)."""
AWAY_S: Final = 20.0
PROBE_S: Final = 0.5
DISK_MB: Final = 96
TWO_DEVICES: Final = ("cpu:0", "cpu:1")
LOSS: Final = 0.3
JITTER_S: Final = 0.2
OPEN_S: Final = 2.0
"""A job that runs for so long is promised right before the power goes, so that one is open then."""


async def leader(folder: Path, rounds: int, seed: int) -> None:
    """The node that leads leases, records or the queue is killed under load, of three."""

    async def kill(made: Rig, load: Load, node: NatsServer, stream: str) -> None:
        began = now()
        await node.kill()
        await more_accepted(made, load, 6)
        measured(made, "leader", stream, "SIGKILL to accepted jobs", now() - began, SERVING_BOUND_S)
        await made.nats_serves()
        measured(made, "leader", stream, "SIGKILL to all streams led", now() - began, SERVING_BOUND_S)
        await made.start_node(node)

    await _of_three("kill leader", kill, folder, rounds, seed)


async def stop(folder: Path, rounds: int, seed: int) -> None:
    """That node is stopped until the others have elected another leader, and goes on as if it were still one."""

    async def freeze(made: Rig, load: Load, node: NatsServer, stream: str) -> None:
        pid = node.pid
        assert made.signal(pid, signal.SIGSTOP), "a node has ended by itself"
        try:
            await asyncio.sleep(STOP_S)
        finally:
            made.signal(pid, signal.SIGCONT)
        await more_accepted(made, load, 50)
        await made.nats_serves()

    await _of_three("stop leader", freeze, folder, rounds, seed)


async def _of_three(
    kind: str, strike: Callable[[Rig, Load, NatsServer, str], Awaitable[None]], folder: Path, rounds: int, seed: int
) -> None:
    """A leader of three is struck, and no runner may be fenced for it."""
    async with rig(folder, workers=2, nodes=3, engine="toy") as made:
        load, ledger = await loaded(made, seed)
        for number in range(rounds):
            await becomes(made.is_replicated, limit_s=180)
            await more_accepted(made, load, 50)
            stream = LEADERS[number % len(LEADERS)]
            node = await made.leader_of(stream)
            if node is None:
                raise AssertionError(f"{stream} has no leader")
            async with struck(made, kind, "all", node=node.name, stream=stream):
                began = now()
                await strike(made, load, node, stream)
                silent_s = longest_silence(made, began, now())
            measured(made, kind, stream, "longest without an accepted job", silent_s, SERVING_BOUND_S)
            say(number, rounds)
        await finished(made, load, ledger)
        note_fenced(made)
        await settled(made)


async def majority(folder: Path, rounds: int, seed: int) -> None:
    """Two nodes of three are killed under load and started again: no job can be accepted meanwhile."""
    rng = random.Random(seed)
    async with rig(folder, workers=2, nodes=3, engine="toy", devices=TWO_DEVICES) as made:
        load, ledger = await loaded(made, seed)
        for number in range(rounds):
            await becomes(made.is_replicated, limit_s=180)
            await _both_hold(made)
            await more_accepted(made, load, 50)
            lost = rng.sample(made.nodes, 2)
            async with struck(made, "majority", "all", nodes=[node.name for node in lost]):
                await _without(made, load, lost)
                began = now()
                await asyncio.gather(*(made.start_node(node) for node in lost))
                await made.nats_serves()
                _back(made, "all streams led", began)
                await more_accepted(made, load, 6)
                _back(made, "accepted jobs", began)
                await made.refresh()
                await _both_hold(made)
                _back(made, "both runners inside", began)
            await more_accepted(made, load, 50)
            say(number, rounds)
        await finished(made, load, ledger)
        await settled(made)


def _back(made: Rig, what: str, began: float) -> None:
    measured(made, "majority", "nats", f"restart to {what}", now() - began, SERVING_BOUND_S)


async def _both_hold(made: Rig) -> None:
    await made.until(
        lambda: len(made.recorder.holders) == len(TWO_DEVICES) and made.are_inside(),
        limit_s=120,
        what="two holders with their runners inside",
    )


async def _without(made: Rig, load: Load, lost: list[NatsServer]) -> None:
    """Nodes are killed and away; every holder's runner dies meanwhile, and who asks is told 503."""
    runners = {name: made.runner_of(name) for name in made.workers}
    began = now()
    await asyncio.gather(*(node.kill() for node in lost))

    async def dies(name: str, runner: int) -> None:
        await made.until(lambda: not is_alive(runner), what=f"the end of {name}'s runner")
        what = "majority killed to runner dead"
        measured(made, "majority", name, what, now() - began, FENCE_S)

    async def asks() -> None:
        told = Counter[int]()
        while now() - began < AWAY_S:
            told[await load.probe(load.accounts[0])] += 1
            await asyncio.sleep(PROBE_S)
        print(f"told in {AWAY_S:g} s without a majority: {dict(told)}")
        if told.keys() - {503}:
            made.finding(f"not only 503 without a majority: {dict(told)}")

    async with asyncio.TaskGroup() as group:
        for name, runner in runners.items():
            group.create_task(dies(name, runner))
        group.create_task(asks())


async def loss(folder: Path, seconds: int, seed: int) -> None:
    """Three packets in ten to and from a worker are lost for ``seconds``, the others late: it keeps its lease."""
    await _lossy((LOSS, LOSS), folder, seconds, seed)


async def halfloss(folder: Path, seconds: int, seed: int) -> None:
    """The same of those from it only, as ``netem`` on its own interface would have it."""
    await _lossy((0.0, LOSS), folder, seconds, seed)


async def _lossy(share: tuple[float, float], folder: Path, seconds: int, seed: int) -> None:
    if why := link.reason_against():
        raise SystemExit(f"no packets can be lost here: {why}")
    async with rig(folder, workers=2, engine="toy", devices=TWO_DEVICES, is_lossy=True) as made:
        load, ledger = await loaded(made, seed)
        await _both_hold(made)
        ((name, wire),) = made.links.items()
        async with struck(made, "packets lost", name, share=share, jitter_s=JITTER_S):
            began, carried, lost = now(), wire.carried, wire.lost
            made_before = _connections(made, name)
            wire.loss, wire.jitter_s = share, JITTER_S
            await asyncio.sleep(seconds)
            wire.heal()
            ended = now()
        found = beats(made, name, began, ended)
        times = [began, *(beat["at"] for beat in found), ended]
        for before, after in itertools.pairwise(times):
            measured(made, "loss", name, "from beat to beat", after - before, FENCE_S)
        print(
            f"{wire.carried - carried} packets, {wire.lost - lost} of them lost; {len(found)} revisions of its lease;"
            f" {_connections(made, name) - made_before} new connections"
        )
        note_fenced(made)
        await finished(made, load, ledger)
        await settled(made)


def _connections(made: Rig, name: str) -> int:
    return sum(proxy.connections for proxy in made.proxies[name])


async def disk(folder: Path, rounds: int, seed: int) -> None:
    """NATS' disk is full under load: callers get 503, and when there is room again nothing accepted is missing."""
    async with rig(folder, workers=2, engine="toy", disk_mb=DISK_MB) as made:
        assert made.disk is not None
        load, ledger = await loaded(made, seed)
        for number in range(rounds):
            await more_accepted(made, load, 50)
            async with struck(made, "disk full", "all"):
                was = refused(load)
                made.disk.fill()
                await made.until(lambda was=was: refused(load) > was + 20, what="refusals")
                made.disk.free()
                # JetStream takes no more writes after ENOSPC until it is started again (docs/operations.md).
                began = now()
                await made.nodes[0].kill()
                await made.start_node(made.nodes[0])
                await made.nats_serves()
                await more_accepted(made, load, 1)
                measured(made, "disk", "nats", "restart to accepted jobs", now() - began, SERVING_BOUND_S)
            say(number, rounds)
        await finished(made, load, ledger)
        await settled(made)


async def power(folder: Path, rounds: int, seed: int) -> None:
    """The one node's machine loses its power under load: what was promised is there when it is back."""
    await _struck_by(powers.power_cut, folder, rounds, seed, nodes=1)


async def rack(folder: Path, rounds: int, seed: int) -> None:
    """Three nodes lose their power at one instant under load."""
    await _struck_by(powers.rack_power_cut, folder, rounds, seed, nodes=3)


async def lie(folder: Path, rounds: int, seed: int) -> None:
    """The one node's disk acknowledges syncs and loses them at a power cut."""
    await _struck_by(powers.lying_disk, folder, rounds, seed, nodes=1)


async def _struck_by(strike: Strike[Rig], folder: Path, rounds: int, seed: int, *, nodes: int) -> None:
    rng = random.Random(seed)
    async with rig(folder, workers=2, nodes=nodes, engine="toy", has_disks=True) as made:
        load, ledger = await loaded(made, seed)
        for number in range(rounds):
            await more_accepted(made, load, 51)
            await load.run(load.accounts[0], OPEN_S)
            await strike(made, rng)
            say(number, rounds)
        await more_accepted(made, load, 51)
        await finished(made, load, ledger)
        print(f"{load.answers['lost', 404]} not found")
        await settled(made)
