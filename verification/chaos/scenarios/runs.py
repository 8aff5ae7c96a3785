"""Scenarios about one running job: its worker dies, or its owner cancels it."""

import asyncio
import random
import signal
from pathlib import Path
from typing import Final

from verification.chaos.evidence.history import ENDED
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import a_holder, measured, struck
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios.scene import finished, say, served, settled

AGAIN_S: Final = (0.25, 0.5)
"""p50 and p99 from SIGKILL to the job's next attempt, where another worker waits for the device."""
CANCELLED_S: Final = (3.0, 3.0)
"""From DELETE to the durable end."""
BOUND_S: Final = 60.0
RUN_S: Final = 2.0
BRIEF_S: Final = 1.5
"""Less than a cancelled run is left to end by itself (``cancel_grace_s``)."""
ENDLESS_S: Final = 600.0
"""As good as: such a run ends with its runner."""
LATEST_S: Final = 1.0
"""A run is interrupted at any moment up to this."""


async def restart(folder: Path, rounds: int, seed: int) -> None:
    """SIGKILL to the supervisor whose runner is at a job, until that job runs again."""
    rng = random.Random(seed)
    async with rig(folder, workers=3, engine="toy") as made:
        load, ledger = await served(made, seed)
        for number in range(rounds):
            await a_holder(made)
            job = await load.run(load.accounts[0], RUN_S)
            await _is_running(made, job, 1)
            await asyncio.sleep(rng.uniform(0, LATEST_S))
            name = made.holder()
            async with struck(made, "kill supervisor", name):
                began = now()
                made.signal(made.child(name).pid, signal.SIGKILL)
                await _is_running(made, job, 2)
                what = "SIGKILL to running again"
                measured(made, "restart", name, what, now() - began, BOUND_S)
            made.background(made.bring_back(name))
            await _has_ended(made, job)
            say(number, rounds)
        await finished(made, load, ledger)
        await settled(made)


async def cancel(folder: Path, rounds: int, seed: int) -> None:
    """DELETE of a running job until its record has ended; every other run would not end by itself."""
    rng = random.Random(seed)
    async with rig(folder, workers=1, engine="toy") as made:
        load, ledger = await served(made, seed)
        ann = load.accounts[0]
        for number in range(rounds):
            run_s, kind = ((BRIEF_S, "ends"), (ENDLESS_S, "does not"))[number % 2]
            job = await load.run(ann, run_s)
            await _is_running(made, job, 1)
            await asyncio.sleep(rng.uniform(0, LATEST_S))
            began = now()
            status = await load.withdraw(ann, job)
            await _has_ended(made, job)
            what = f"DELETE to the end of a run that {kind}"
            measured(made, "cancel", made.holder(), what, now() - began, BOUND_S)
            if (status, made.recorder.states[job]) != (202, "cancelled"):
                made.finding(f"DELETE was {status} and {job} {made.recorder.states[job]}")
            say(number, rounds)
        await finished(made, load, ledger)
        await settled(made)


async def _is_running(made: Rig, job: str, attempt: int) -> None:
    recorder = made.recorder
    await made.until(
        lambda: recorder.states.get(job) == "running" and recorder.attempts[job] == attempt,
        limit_s=BOUND_S,
        what=f"attempt {attempt} of {job}",
    )


async def _has_ended(made: Rig, job: str) -> None:
    await made.until(lambda: made.recorder.states.get(job) in ENDED, limit_s=BOUND_S, what=f"the end of {job}")
