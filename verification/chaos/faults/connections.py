"""Faults of one program's connection to NATS: by its proxies, and by the kernel."""

import asyncio
import random

from tests.rigs.processes import is_alive
from verification.chaos.environment.proxy import CUT, Weather
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import a_holder, measured, struck
from verification.chaos.faults.workers import FREEZE_BOUND_S
from verification.chaos.rig.rig import Rig


async def somebody(rig: Rig, rng: random.Random) -> str:
    """The front or a worker, the holder most of the time."""
    choice = rng.random()
    if choice < 0.35:
        return "gateway"
    return await a_holder(rig) if choice < 0.8 else rng.choice(rig.workers)


async def reset(rig: Rig, rng: random.Random) -> None:
    """RST on every connection of one program."""
    name = await somebody(rig, rng)
    async with struck(rig, "reset", name):
        before = _connections(rig, name)
        for proxy in rig.proxies[name]:
            proxy.reset()
        await _reconnected(rig, name, before)


async def hang_up(rig: Rig, rng: random.Random) -> None:
    """FIN on every connection of one program."""
    name = await somebody(rig, rng)
    async with struck(rig, "hang up", name):
        before = _connections(rig, name)
        for proxy in rig.proxies[name]:
            proxy.hang_up()
        await _reconnected(rig, name, before)


async def refuse(rig: Rig, rng: random.Random) -> None:
    """RST, and no way back for a while."""
    name = await somebody(rig, rng)
    async with struck(rig, "refuse", name):
        rig.weather(name, Weather(is_refusing=True))
        before = _connections(rig, name)
        for proxy in rig.proxies[name]:
            proxy.reset()
        await _reconnected(rig, name, before + rng.randint(0, 3))  # so many tries are refused
        rig.weather(name, Weather())
        await _reconnected(rig, name, _connections(rig, name))


async def half_open(rig: Rig, rng: random.Random) -> None:
    """Nothing passes, without an error, until the program closes the connection; what it sent may arrive then."""
    name = await somebody(rig, rng)
    is_late = rng.random() < 0.6
    async with struck(rig, "late delivery" if is_late else "half open", name):
        began = now()
        stranded = [proxy.strand() for proxy in rig.proxies[name]]
        await rig.until(lambda: all(s.is_given_up for s in stranded), what=f"{name} notices a dead connection")
        measured(rig, "half open", name, "noticed", now() - began, 30.0)
        for each in stranded:
            if is_late:
                each.deliver_late()
            else:
                each.drop()


async def one_way(rig: Rig, rng: random.Random) -> None:
    """Bytes pass in one direction only, for a while."""
    name, way = await somebody(rig, rng), rng.choice(("up", "down"))
    async with struck(rig, f"one way {way}", name):
        rig.weather(name, Weather(held=frozenset({way})))  # type: ignore[arg-type]
        await asyncio.sleep(rng.uniform(0.3, 1.8))
        rig.weather(name, Weather())


async def latency(rig: Rig, rng: random.Random) -> None:
    """Every chunk is late, both ways, for a while."""
    name = await somebody(rig, rng)
    async with struck(rig, "latency", name):
        rig.weather(name, Weather(delay_s=rng.uniform(0.02, 0.3)))
        await asyncio.sleep(rng.uniform(0.3, 1.2))
        rig.weather(name, Weather())


async def partition(rig: Rig, rng: random.Random) -> None:
    """The holder is cut off until its guard has ended its runner and another holds the GPU."""
    name = await a_holder(rig)
    token, runner = rig.newest_token(), rig.runner_of(name)
    async with struck(rig, "partition", name):
        began = now()
        rig.weather(name, CUT)
        try:
            if runner:
                await rig.until(lambda: not is_alive(runner) or rig.newest_token() > token, what="the fence")
                measured(rig, "partition", name, "fenced", now() - began, FREEZE_BOUND_S)
            await rig.new_holder(token)
        finally:
            rig.weather(name, Weather())
            for proxy in rig.proxies[name]:
                proxy.reset()


async def drop_packets(rig: Rig, rng: random.Random) -> None:
    """The kernel drops packets of one worker: all of a direction, of both, or a share."""
    ((name, space),) = rig.namespaces.items()
    shares: tuple[tuple[str, str, str], ...] = (
        ("in", "all", ""),
        ("out", "", "all"),
        ("both ways", "all", "all"),
        ("some", "30", "30"),
    )
    what, incoming, outgoing = rng.choice(shares)
    async with struck(rig, f"packets lost {what}", name):
        space.drop(incoming=incoming, outgoing=outgoing)
        try:
            await asyncio.sleep(rng.uniform(0.3, 1.8))
        finally:
            space.heal()


def _connections(rig: Rig, name: str) -> int:
    return sum(proxy.connections for proxy in rig.proxies[name])


async def _reconnected(rig: Rig, name: str, before: int) -> None:
    """It has tried again, or is itself dead."""
    await rig.until(lambda: _connections(rig, name) > before or not rig.child(name).pid, what=f"{name} connects again")
