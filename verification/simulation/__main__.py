"""``python -m verification.simulation``: play simulated worlds, one a seed, and say what was seen.

``--seeds N --first S --jobs P`` plays N worlds in P processes. ``--trace`` with one seed prints what
happened in it. Exits with 1 where something was seen that must not be, and says how to see it again.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

from signalbox.program import log
from verification.simulation.faults import Faults
from verification.simulation.loop import Stuck, running
from verification.simulation.world import Outcome, Shape, World, draw

_CHUNK: Final = 25
_CHUNKS_EACH: Final = 2
"""After which a process is replaced: the garbage of a world is two megabytes; looking for it costs a fifth of one."""
_PRINTED: Final = 20
perf_counter = time.perf_counter


def play(
    seed: int,
    *,
    is_traced: bool = False,
    shape: Shape | None = None,
    make_faults: Callable[[World], Faults] | None = None,
) -> Outcome:
    """One world from its beginning to its end; ``shape`` and ``make_faults`` instead of what the seed draws."""
    outcome = Outcome(seed)
    with running(seed) as loop:

        async def live() -> None:
            nonlocal outcome
            world = World(loop, shape or draw(seed), is_traced=is_traced, make_faults=make_faults)
            outcome = world.outcome
            await world.play()

        try:
            loop.run_until_complete(loop.spawn_world(live()))
        except Stuck as stuck:
            outcome.violations.append(str(stuck))
    return outcome


def play_many(seeds: Sequence[int]) -> list[Outcome]:
    """Several."""
    return [play(seed) for seed in seeds]


@contextmanager
def silenced() -> Iterator[None]:
    """Silence the logs of programs in a simulated world and the warnings on coroutines of dead programs."""
    hook = sys.unraisablehook
    with ExitStack() as stack:
        for name in ("debug", "info", "warning", "error", "exception"):
            stack.enter_context(patch.object(log, name, _say_nothing))
        stack.enter_context(patch.object(log, "get_logger", lambda **_: _NO_LOG))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)
        sys.unraisablehook = lambda _: None
        try:
            yield
        finally:
            gc.collect()
            sys.unraisablehook = hook


class _NoLog:
    """A logger."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return _say_nothing


_NO_LOG: Final = _NoLog()
_for_ever: Final = ExitStack()


def _say_nothing(*_: object, **__: object) -> None:
    pass


def prepare() -> None:
    """A process that runs worlds, and is replaced before their garbage takes much memory."""
    _for_ever.enter_context(silenced())
    play(0)
    gc.collect()
    gc.disable()


def chunks(first: int, count: int) -> Iterator[range]:
    """Seeds in portions for the processes."""
    for start in range(first, first + count, _CHUNK):
        yield range(start, min(start + _CHUNK, first + count))


class Totals:
    """What all worlds have shown together."""

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}
        self.checks: dict[str, int] = {}
        self.seeds = self.jobs = self.callbacks = 0
        self.seconds = 0.0
        self.failed: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """One world more."""
        self.seeds += 1
        self.jobs += outcome.jobs
        self.callbacks += outcome.callbacks
        self.seconds += outcome.seconds
        for mine, theirs in ((self.faults, outcome.faults), (self.checks, outcome.checks)):
            for name, number in theirs.items():
                mine[name] = mine.get(name, 0) + number
        if outcome.violations:
            self.failed.append(outcome)

    def lines(self, wall_s: float) -> Iterator[str]:
        """The report."""
        for name, number in sorted(self.faults.items(), key=lambda item: -item[1]):
            yield f"  {name.replace('_', ' '):28} {number:9,}"
        yield f"  {'faults injected':28} {sum(self.faults.values()):9,}"
        for name, number in sorted(self.checks.items()):
            yield f"  checked: {name:19} {number:9,}"
        yield (
            f"{self.seeds:,} seeds, {self.jobs:,} jobs, {sum(self.faults.values()):,} faults,"
            f" {self.seconds / 3600:.1f} simulated hours, {self.callbacks:,} callbacks in"
            f" {wall_s:.0f} s: {sum(len(o.violations) for o in self.failed)} violations"
        )


def run(first: int, count: int, jobs: int) -> Totals:
    """Play ``count`` worlds in ``jobs`` processes; failures are printed as they come."""
    totals = Totals()
    prepare()
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=_CHUNKS_EACH) as pool:
        for outcomes in pool.imap(play_many, map(list, chunks(first, count))):
            for outcome in outcomes:
                totals.add(outcome)
                if outcome.violations and len(totals.failed) <= _PRINTED:
                    say(f"seed {outcome.seed}:")
                    for what in outcome.violations[:5]:
                        say(f"  {what}")
                    say(f"  again: python -m verification.simulation --first {outcome.seed} --trace")
    return totals


def say(text: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m verification.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", action="store_true", help="play one seed and print its story")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings is part of a world
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "verification.simulation", *sys.argv[1:]])
    if options.trace:
        with silenced():
            outcome = play(options.first, is_traced=True)
        for line in [*outcome.trace, *outcome.violations]:
            say(line)
        return 1 if outcome.violations else 0
    began = perf_counter()
    totals = run(options.first, options.seeds, options.jobs)
    for line in totals.lines(perf_counter() - began):
        say(line)
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
