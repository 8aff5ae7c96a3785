"""The model of NATS and a real server on the same walks: ``python -m verification.simulation.cases.compare 0 300 150``.

Arguments: first seed, first seed no more, acts a walk. Status 1 if an outcome differs; seed and act are printed.
"""

import asyncio
import sys
import time
from typing import Final

from verification.simulation.cases.playing import in_virtual_time, outcome
from verification.simulation.cases.rigs import ModelRig, RealRig, declared
from verification.simulation.cases.walks import Outcome, walk

_AT_ONCE: Final = 8


def on_the_model(seed: int, steps: int) -> list[Outcome]:
    """The walk in virtual time."""
    return in_virtual_time(lambda: ModelRig(f"w{seed}", seed=1), lambda rig: walk(rig, seed, steps), seed=1)


async def on_a_server(walks: dict[int, list[Outcome]], steps: int) -> dict[int, list[Outcome] | Exception]:
    """The same walks on a real server, several at once, each held against what is expected of it."""
    outcomes: dict[int, list[Outcome] | Exception] = {}
    room = asyncio.Semaphore(_AT_ONCE)

    async def play(seed: int) -> None:
        async with room:
            outcomes[seed] = await outcome(
                RealRig(f"w{seed}", server), lambda rig: walk(rig, seed, steps, walks[seed]), 200
            )

    async with declared() as server, asyncio.TaskGroup() as group:
        for seed in walks:
            group.create_task(play(seed))
    return outcomes


def main(first: int, end: int, steps: int) -> int:
    """Walk and compare; the number of walks that differ."""
    started = time.monotonic()
    walks = {seed: on_the_model(seed, steps) for seed in range(first, end)}
    real = asyncio.run(on_a_server(walks, steps))
    differ = 0
    for seed, found in sorted(real.items()):
        if found != walks[seed]:
            differ += 1
            print(f"seed {seed}: {found if isinstance(found, Exception) else 'events differ'}")
    took_s = time.monotonic() - started
    print(f"{len(walks)} walks of {steps} acts, {differ} differ, {took_s:.0f} s")
    return differ


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])) > 0)
