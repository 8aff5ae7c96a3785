"""Scenarios about the holder of a GPU: it is killed, stopped, or cut off from NATS."""

import asyncio
import random
import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

from tests.rigs.processes import gone, is_alive, resident_bytes
from verification.chaos.environment.proxy import CUT, Weather
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import a_holder, measured, struck
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios.outages import FENCE_S
from verification.chaos.scenarios.scene import say, settled

BALLAST_MB: Final = 2048
TAKEOVER_S: Final = (0.150, 1.0)
"""p50 and p99 from SIGKILL to the new holder's record."""
DEVICES: Final = tuple(f"cpu:{number}" for number in range(6))


async def takeover(folder: Path, rounds: int, seed: int) -> None:
    """SIGKILL to the supervisor that holds the GPU, its runner 2 GB resident, until another's record is there."""
    async with rig(folder, workers=3, engine="toy", ballast_mb=BALLAST_MB) as made:
        for number in range(rounds):
            name = await a_holder(made)
            runner, token = made.runner_of(name), made.newest_token()
            if resident_bytes(runner) < BALLAST_MB << 20:
                raise AssertionError(f"the runner of {name} is not resident")
            # At any time in a heartbeat: for half a second after a change no worker can prove the new holder dead.
            await asyncio.sleep(random.Random(seed + number).uniform(0, 2.0))
            async with struck(made, "kill supervisor", name):
                made.signal(made.child(name).pid, signal.SIGKILL)
                freed, held = await asyncio.gather(_seconds(gone(runner, 30.0)), _seconds(made.new_holder(token)))
            for what, seconds in (
                ("SIGKILL to new holder", held),
                ("SIGKILL to 2 GB freed by the kernel", freed),
                ("freed to new holder", max(0.0, held - freed)),
            ):
                measured(made, "takeover", name, what, seconds, 15.0)
            made.background(made.bring_back(name))
            say(number, rounds)
        await settled(made)


async def freeze(folder: Path, rounds: int, seed: int) -> None:
    """SIGSTOP and partitions, six GPUs at a time, until each runner is dead."""
    async with rig(folder, workers=len(DEVICES), engine="toy", devices=DEVICES) as made:
        for number in range(rounds):
            await made.until(
                lambda: len(made.recorder.holders) == len(DEVICES) and made.are_inside(),
                limit_s=120,
                what="six holders with their runners inside",
            )
            await asyncio.sleep(random.Random(seed + number).uniform(0, 2.0))  # anywhere in a heartbeat
            async with asyncio.TaskGroup() as group:
                for place, name in enumerate(made.workers):
                    act = _frozen if (place + number) % 2 else _cut_off
                    group.create_task(act(made, name))
            say(number, rounds)
        await settled(made)


async def _seconds(work: Awaitable[object]) -> float:
    began = now()
    await work
    return now() - began


async def _frozen(made: Rig, name: str) -> None:
    pid, runner = made.child(name).pid, made.runner_of(name)
    async with struck(made, "freeze supervisor", name, pid=pid):
        began = now()
        made.signal(pid, signal.SIGSTOP)
        try:
            await made.until(lambda: not is_alive(runner), what="the frozen one's runner's end")
            measured(made, "freeze", name, "SIGSTOP to runner dead", now() - began, FENCE_S)
        finally:
            made.signal(pid, signal.SIGCONT)


async def _cut_off(made: Rig, name: str) -> None:
    runner = made.runner_of(name)
    async with struck(made, "partition", name):
        began = now()
        made.weather(name, CUT)
        try:
            await made.until(lambda: not is_alive(runner), what="the one cut off's runner's end")
            measured(made, "partition", name, "cut to runner dead", now() - began, FENCE_S)
        finally:
            made.weather(name, Weather())
            for proxy in made.proxies[name]:
                proxy.reset()
