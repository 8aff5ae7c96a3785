"""Power cuts, as named objects: of one node's machine, of a whole rack's, and of one whose disk lied.

Only a rig that was given disks of their own (:mod:`verification.chaos.environment.disk`) can do them.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from signalbox.bus import topology
from signalbox.wire.names import Stream
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from tests.rigs.processes import stop
from verification.chaos.environment import disk
from verification.chaos.environment.disk import Disk
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import Fault, measured, struck
from verification.chaos.faults.workers import ask_release
from verification.chaos.rig.rig import Rig

SERVING_BOUND_S: Final = 60.0
FORGOTTEN_JOBS: Final = 50
"""A disk that lies does so until this many more jobs have been queued."""
STALE_MARGIN: Final = 100
"""Sequences that may have been given after the last one that was seen before a cut."""


async def blackout(nodes: Sequence[NatsServer], disks: Sequence[Disk]) -> None:
    """Servers and disks stop at one instant. The servers are frozen before the disks go and killed after.

    Killed first, a server would close its files, which has the kernel write some of them; left running, it could
    answer after its disk had gone.
    """
    pids = [node.pid for node in nodes]
    assert all(pids), "a node has ended by itself"  # 0 would be our own group
    await stop(*pids)
    for each in disks:
        each.cut()
    await asyncio.gather(*(node.kill() for node in nodes))


async def power_cut(rig: Rig, rng: random.Random) -> None:
    """One node's machine loses its power and gets it back."""
    if len(rig.nodes) > 1:
        await becomes(rig.is_replicated, limit_s=120)
    await _outage(rig, "power cut", [rng.randrange(len(rig.nodes))])


async def rack_power_cut(rig: Rig, rng: random.Random) -> None:
    """All nodes lose their power at once and get it back."""
    await _outage(rig, "rack power cut", range(len(rig.nodes)))


async def _outage(rig: Rig, kind: str, places: Sequence[int]) -> None:
    names = [rig.nodes[place].name for place in places]
    async with struck(rig, kind, "all", nodes=names):
        began = now()
        await _cut(rig, places)
        await _power_back(rig, places)
        measured(rig, kind, " ".join(names), "serving again", now() - began, SERVING_BOUND_S)


async def lying_disk(rig: Rig, rng: random.Random) -> None:
    """Two power cuts; after the second everything that was synced since the first is gone.

    What was forgotten is written down, for the laws to excuse (:func:`verification.chaos.evidence.history.remembered`).
    """
    async with struck(rig, "lying disk", "all"):
        await _cut(rig, [0])
        await asyncio.to_thread(rig.disks[0].keep)
        since = now()
        await _power_back(rig, [0])
        began_at = await rig.last_job()
        await ask_release(rig, rng)  # so that sequences fall behind a token that a runner was let in with
        await rig.until(rig.are_inside, what="a runner inside")
        last = await _queued(rig, began_at + FORGOTTEN_JOBS)
        await _cut(rig, [0])
        until = now()
        await asyncio.to_thread(rig.disks[0].roll_back)
        await _power_back(rig, [0])
        # A late removal of a forgotten job hits the job that was given its sequence next.
        await _queued(rig, last + STALE_MARGIN)
        rig.faults.note(
            event="forgot",
            kind="lying disk",
            target="all",
            since=since,
            until=until,
            reused_until=now(),
            jobs=last - began_at,
        )


async def _queued(rig: Rig, sequence: int) -> int:
    """The last sequence of the queue, once it has passed ``sequence``."""
    last = 0

    async def is_reached() -> bool:
        nonlocal last
        last = int(await rig.patiently(rig.last_job))
        return last > sequence

    await becomes(is_reached, limit_s=60)
    return last


async def _cut(rig: Rig, places: Sequence[int]) -> None:
    """Returns when everything that those servers had said has been received by the recorder."""
    await blackout([rig.nodes[n] for n in places], [rig.disks[n] for n in places])
    if len(places) == len(rig.nodes):
        await rig.until(lambda: not rig.bus.is_connected, what="the end of our own connection")


async def _power_back(rig: Rig, places: Sequence[int]) -> None:
    for place in places:
        await asyncio.to_thread(rig.disks[place].put_back)
    await asyncio.gather(*(rig.start_node(rig.nodes[place]) for place in places))
    await rig.nats_serves()
    await _declare(rig)
    await rig.refresh()


async def _declare(rig: Rig) -> None:
    """What ``signalbox up`` does when it starts. Only ``EVENTS`` may need it, which is lazy about the disk."""
    faults = await rig.patiently(lambda: topology.check(rig.bus))
    assert set(faults) <= {f"stream {Stream.EVENTS} does not exist"}, faults
    if faults:
        rig.faults.note(event="declared", kind="power back", target="all", what=faults)
        await rig.patiently(rig.declare)


def catalogue(*, nodes: int, has_disks: bool) -> Sequence[Fault[Rig]]:
    """Every kind, those that cannot be done here with the reason."""
    why_not = disk.reason_against() if has_disks else "no node was given a disk of its own (--disks)"
    of_three = "" if nodes > 1 else "one node is no rack"
    of_one = "" if nodes == 1 else "Raft rests on votes that are not forgotten"
    return (
        Fault("power cut", 5, power_cut, why_not),
        Fault("rack power cut", 4, rack_power_cut, why_not or of_three),
        Fault("lying disk", 2, lying_disk, why_not or of_one),
    )
