"""Faults of the front and of NATS."""

import asyncio
import random
import signal
from typing import Final

from tests.rigs.outage import becomes
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import measured, pause, struck
from verification.chaos.rig.rig import Rig

STOPPED_S: Final = 12.0
"""The others elect a leader within this (4 to 9 s)."""


async def kill_gateway(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to the plugin with the edge inside; started again at once."""
    async with struck(rig, "kill gateway", "gateway"):
        if rig.child("gateway").pid:
            await rig.kill("gateway")
        await rig.bring_back("gateway")


async def pause_gateway(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP for a moment."""
    pid = rig.child("gateway").pid
    async with struck(rig, "pause gateway", "gateway", pid=pid):
        if rig.signal(pid, signal.SIGSTOP):
            await asyncio.sleep(rng.uniform(0.2, 1.2))
            rig.signal(pid, signal.SIGCONT)


async def kill_nats(rig: Rig, rng: random.Random) -> None:
    """SIGKILL to a node, started again on what it had written."""
    node = rng.choice(rig.nodes)
    if len(rig.nodes) > 1:
        await becomes(rig.is_replicated, limit_s=120)
    async with struck(rig, "kill nats", "all", node=node.name):
        began = now()
        await node.kill()
        await asyncio.sleep(rng.choice((0.0, 0.0, 0.5, 2.0)))
        await rig.start_node(node)
        await rig.nats_serves()
        await rig.refresh()
        measured(rig, "kill nats", node.name, "serving again", now() - began, 60.0)


async def kill_leader(rig: Rig, rng: random.Random, stream: str = "") -> None:
    """SIGKILL to the node that leads ``stream``, of three; any that decisions rest on."""
    stream = stream or rng.choice(("JOBS", "STATE", "KV_leases", "KV_waiters", "KV_keys"))
    await becomes(rig.is_replicated, limit_s=120)
    node = await rig.leader_of(stream)
    assert node is not None, f"{stream} has no leader"
    async with struck(rig, "kill leader", "all", node=node.name, stream=stream):
        began = now()
        await node.kill()
        await rig.nats_serves()
        measured(rig, "kill leader", stream, "another leader", now() - began, 60.0)
        await rig.start_node(node)
        await becomes(rig.is_replicated, limit_s=120)
        await rig.refresh()


async def stop_leader(rig: Rig, rng: random.Random, stream: str) -> None:
    """SIGSTOP to that node until the others have elected another leader; it goes on as if it were still one."""
    node = await rig.leader_of(stream)
    assert node is not None, f"{stream} has no leader"
    pid = node.pid
    async with struck(rig, "stop leader", "all", node=node.name, stream=stream):
        assert rig.signal(pid, signal.SIGSTOP), "a node has ended by itself"
        try:
            await asyncio.sleep(STOPPED_S)
        finally:
            rig.signal(pid, signal.SIGCONT)
        await rig.nats_serves()


async def pause_nats(rig: Rig, rng: random.Random) -> None:
    """SIGSTOP to a node: requests time out and may yet be carried out."""
    node = rng.choice(rig.nodes)
    await pause(rig, rng, "pause nats", node.pid)
    await rig.nats_serves()
    await rig.refresh()
