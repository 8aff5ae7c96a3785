"""Faults of workers: of supervisors, guards and runners, and of the lease."""

import random
import signal
from contextlib import suppress
from typing import Final

from signalbox.program.errors import SignalboxError
from signalbox.wire import names
from signalbox.wire.names import Bucket, Header
from tests.rigs.processes import is_alive
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import a_holder, a_worker, measured, pause, running, struck
from verification.chaos.rig.site import Site

TAKEOVER_BOUND_S: Final = 20.0
"""In a storm: far above what is promised for one fault (1 s), far below what a broken fast path costs with others."""
FREEZE_BOUND_S: Final = 30.0
"""In a storm, where a holder may be frozen before its runner was let in: then the record's time to live counts."""
SUCCESSOR_BOUND_S: Final = 60.0
"""Time to live of the record, the flock's own deadline, and the start of another worker on a busy machine."""


async def kill_supervisor(rig: Site, rng: random.Random) -> None:
    """SIGKILL to the holder of the GPU: another worker holds it next."""
    name = await a_holder(rig)
    token = rig.newest_token()
    async with struck(rig, "kill supervisor", name):
        began = now()
        rig.signal(rig.pid_of(name), signal.SIGKILL)
        try:
            await rig.new_holder(token)
            measured(rig, "kill supervisor", name, "takeover", now() - began, TAKEOVER_BOUND_S)
        finally:
            rig.background(rig.bring_back(name))  # its start would take from the take-over's time


async def kill_standby(rig: Site, rng: random.Random) -> None:
    """SIGKILL to a worker that waits."""
    holder = await a_holder(rig)
    name = rng.choice([other for other in running(rig) if other != holder])
    async with struck(rig, "kill standby", name):
        await rig.kill(name)
        rig.background(rig.bring_back(name))


async def kill_guard(rig: Site, rng: random.Random) -> None:
    """SIGKILL to a guard: its runner goes with it, the lease moves on or comes back."""
    name = await a_holder(rig)
    token, guard = rig.newest_token(), rig.guard_of(name)
    runner = rig.runner_of(name)
    async with struck(rig, "kill guard", name, pid=guard):
        began = now()
        if not rig.signal(guard, signal.SIGKILL):
            return
        if runner:
            await rig.until(lambda: not is_alive(runner), what="the runner's end")
            measured(rig, "kill guard", name, "runner dead", now() - began, TAKEOVER_BOUND_S)
        await rig.new_holder(token)


async def kill_runner(rig: Site, rng: random.Random) -> None:
    """SIGKILL to the runner: guard and lease stay, another runner enters."""
    name = await a_holder(rig)
    runner = rig.runner_of(name)
    async with struck(rig, "kill runner", name, pid=runner):
        if not rig.signal(runner, signal.SIGKILL):
            return
        await rig.until(lambda: rig.runner_of(name) not in {0, runner} or not rig.pid_of(name), what="another runner")


async def pause_supervisor(rig: Site, rng: random.Random) -> None:
    """SIGSTOP for less than the fence: nothing may happen."""
    await pause(rig, rng, "pause supervisor", rig.pid_of(await a_holder(rig)))


async def pause_runner(rig: Site, rng: random.Random) -> None:
    """SIGSTOP to the runner in the middle of a batch, then on."""
    await pause(rig, rng, "pause runner", rig.runner_of(await a_holder(rig)))


async def freeze_supervisor(rig: Site, rng: random.Random) -> None:
    """SIGSTOP until its guard has killed its runner and another holds the GPU; then it thaws."""
    name = await a_holder(rig)
    token, pid, runner = rig.newest_token(), rig.pid_of(name), rig.runner_of(name)
    async with struck(rig, "freeze supervisor", name, pid=pid):
        began = now()
        rig.signal(pid, signal.SIGSTOP)
        try:
            if runner:
                await rig.until(lambda: not is_alive(runner) or rig.newest_token() > token, what="the fence")
                measured(rig, "freeze supervisor", name, "fenced", now() - began, FREEZE_BOUND_S)
            await rig.new_holder(token)
        finally:
            rig.signal(pid, signal.SIGCONT)


async def freeze_successor(rig: Site, rng: random.Random) -> None:
    """Kill the holder and freeze its successor as soon as its record is stored, often before its runner is inside.

    Another runner must be inside soon, although the frozen one's guard may have had the flock.
    """
    name = await a_holder(rig)
    token = rig.newest_token()
    async with struck(rig, "freeze successor", "all"):
        await rig.kill(name)
        rig.background(rig.bring_back(name))
        await rig.new_holder(token)
        successor, token = rig.holder(), rig.newest_token()
        if not successor:  # it has given it up again
            return
        pid, began = rig.pid_of(successor), now()
        rig.signal(pid, signal.SIGSTOP)
        try:
            await rig.until(lambda: rig.entered() > token, limit_s=90, what="another inside")
            measured(rig, "freeze successor", successor, "another inside", now() - began, SUCCESSOR_BOUND_S)
        finally:
            rig.signal(pid, signal.SIGCONT)


async def freeze_guard(rig: Site, rng: random.Random) -> None:
    """SIGSTOP to a guard: its supervisor gets no answer and replaces it."""
    name = await a_holder(rig)
    guard = rig.guard_of(name)
    async with struck(rig, "freeze guard", name, pid=guard):
        began = now()
        if not rig.signal(guard, signal.SIGSTOP):
            return
        await rig.until(lambda: not is_alive(guard), what="the frozen guard's end")
        measured(rig, "freeze guard", name, "guard replaced", now() - began, TAKEOVER_BOUND_S)


async def roll_worker(rig: Site, rng: random.Random) -> None:
    """SIGTERM: it drains, ends by itself with 0, and is started again, as a deployment does."""
    name = await a_worker(rig, rng)
    pid = rig.pid_of(name)
    async with struck(rig, "roll worker", name, pid=pid):
        began = now()
        rig.signal(pid, signal.SIGTERM)
        await rig.until(lambda: rig.pid_of(name) != pid, what=f"{name}'s end after SIGTERM")
        measured(rig, "roll worker", name, "drained", now() - began, 60.0)
        rig.background(rig.bring_back(name))


async def ask_release(rig: Site, rng: random.Random) -> None:
    """An operator asks the holder to hand over, and again while it does not: a core message may be lost."""
    name = await a_holder(rig)
    token = rig.newest_token()
    async with struck(rig, "ask release", name):
        began = now()
        while rig.newest_token() <= token:
            for gpu in list(rig.recorder.holders):
                await rig.bus.publish(names.ask_release(gpu))
            with suppress(AssertionError):
                await rig.new_holder(token, limit_s=2.0)
            if now() - began > 60:
                raise AssertionError(f"{name} does not hand over")


async def delete_lease(rig: Site, rng: random.Random) -> None:
    """A person purges the lease key by hand: its holder is refused at its next heartbeat; the flock holds meanwhile."""
    name = await a_holder(rig)
    token, gpu = rig.newest_token(), next(iter(rig.recorder.holders))
    async with struck(rig, "delete lease", name):
        with suppress(SignalboxError):
            await rig.bus.write(
                names.key(Bucket.LEASES, names.token(gpu)), headers={Header.KV_OPERATION: "PURGE", Header.ROLLUP: "sub"}
            )
            await rig.new_holder(token)
