"""Random walks through a scope that is too large to search, from the beginning to the end of all jobs.

Each walk meets as many faults as it is allowed, of every kind alike, at steps that its seed draws. A law may break on
the way, and a walk that finds no end is taken for stuck.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from verification.scope.frozen import digest
from verification.scope.graph import report_path
from verification.scope.nodes import Machines
from verification.scope.steps import FAULT_NAMES, KINDS, Step, faults, orders, prompt_steps, slow_steps, taken
from verification.scope.world import Violation, World

_HORIZONS: Final = (15, 30, 60)
"""Steps before which the faults come; a walk without any takes some forty."""
STUCK_AFTER: Final = 5_000
"""Steps. Walks that keep the laws end after some hundreds at most."""
_SLOWNESS: Final = (0.02, 0.2, 1.0)
"""How likely a slow step is beside a prompt one, or time's going on: freezes outlast a fence, or hardly begin."""
_KIND_OF: Final = {name: kind for kind, names in KINDS.items() for name in names}


@dataclass
class Walked:
    """What walks have seen. seed: of the walk that broke a law. longest: steps. states: how many different ones.
    cpu_s: seconds of one core."""

    walks: int = 0
    steps: int = 0
    longest: int = 0
    cpu_s: float = 0.0
    states: set[bytes] = field(default_factory=set)
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    broken: str = ""
    seed: int = 0
    path: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        by_kind = ", ".join(f"{kind} {number:,}" for kind, number in self.faults.items() if number)
        reported = (
            f"{self.walks:,} walks, {self.steps:,} steps (at most {self.longest:,} a walk)"
            f", {len(self.states):,} states; faults: {by_kind}; {self.cpu_s:.1f} s of CPU"
        )
        if not self.broken:
            return f"{reported}; every law holds, every walk ends"
        return f"{reported}\nseed {self.seed}: {report_path(self.broken, self.path)}"


def walk_many(
    machines: Machines,
    *,
    workers: int,
    jobs: int,
    max_faults: int,
    walks: int,
    first: int = 0,
    names: frozenset[str] = FAULT_NAMES,
    say: Callable[[str], None] = lambda _: None,
) -> Walked:
    """``walks`` of them, seeds ``first`` and on, until a law breaks. say: is told now and then how far it is."""
    walked = Walked()
    start = World(machines, workers, jobs)
    began = time.process_time()
    for seed in range(first, first + walks):
        walked.seed, walked.path = seed, []
        walked.walks += 1
        try:
            _walk(walked, start, random.Random(seed), max_faults, names)
        except Violation as violation:
            walked.broken = str(violation)
            break
        finally:
            walked.cpu_s = time.process_time() - began
            walked.steps += len(walked.path)
            walked.longest = max(walked.longest, len(walked.path))
        if walked.walks % 1_000 == 0:
            say(str(walked))
    return walked


def _walk(walked: Walked, world: World, chance: random.Random, max_faults: int, names: frozenset[str]) -> None:
    """One, step by step into ``walked.path``. Raises :class:`Violation`."""
    horizon = chance.choice(_HORIZONS)
    spots = sorted(chance.randrange(horizon) for _ in range(max_faults))
    slowness = chance.choice(_SLOWNESS)
    while not world.is_done:
        if len(walked.path) == STUCK_AFTER:
            raise Violation(f"no end after {STUCK_AFTER:,} steps")
        step = None
        if spots and len(walked.path) >= spots[0]:
            step = _fault(world, chance, names)
        if step is not None:
            spots.pop(0)
            walked.faults[_KIND_OF[step.name]] += 1
        else:
            step = _other(world, chance, slowness if len(walked.path) < STUCK_AFTER // 2 else 1.0)
        world = _after(walked.path, world, step, chance)
        walked.states.add(digest(world))


def _fault(world: World, chance: random.Random, names: frozenset[str]) -> Step | None:
    """One of those that are possible now, every name alike; None = none is."""
    found: dict[str, list[Step]] = {}
    for step in faults(world):
        if step.name in names:
            found.setdefault(step.name, []).append(step)
    return chance.choice(found[chance.choice(list(found))]) if found else None


def _other(world: World, chance: random.Random, slowness: float) -> Step:
    """A prompt step or, while there is none, time's going on; or a slow one."""
    prompt: Sequence[Step] = list(prompt_steps(world)) or [Step("time_passes")]
    slow = list(slow_steps(world))
    if slow and chance.random() * (len(prompt) + slowness * len(slow)) >= len(prompt):
        return chance.choice(slow)
    return chance.choice(prompt)


def _after(path: list[Step], world: World, step: Step, chance: random.Random) -> World:
    """The state after ``step``, received in one order or another."""
    path.append(step)
    after = taken(world, step)
    received = [step, *orders(step, after)]
    path[-1] = chance.choice(received)
    return after if path[-1] is step else taken(world, path[-1])
