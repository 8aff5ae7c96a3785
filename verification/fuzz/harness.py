"""Runs one target on many inputs: deterministic by seed, bounded in time, and keeping what broke it.

A target is a module of this folder with ``SEEDS`` (a folder of small files) and ``one(data)``, which raises
when a promise is broken. What ``one`` returns, if anything, names the outcome; an input that reaches an outcome
for the first time joins the pool the next ones are made from. Optional: ``TOKENS`` (words of the format),
``SHARE`` (its part of the executions when all targets run).
"""

import hashlib
import importlib
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from verification.fuzz.mutator import Mutator

FOLDER: Final = Path(__file__).parent
KEPT: Final = Path(tempfile.gettempdir()) / "signalbox-fuzz"
LIMIT_S: Final = 20.0
"""Seconds of processor time that one execution may take; more is a hang. Time on the clock is no measure: proofs have
what other tests leave them. An execution that waits for ever meets the timeout of its test."""
_NO_TARGETS: Final = frozenset({"__main__", "harness", "mutator"})
_MOST_POOL: Final = 4_000
_MOST_FAILURES: Final = 5
_DEFAULT_SHARE: Final = 20_000


class Hang(BaseException):  # BaseException: the code under test must not be able to swallow it
    """One execution did not end within ``LIMIT_S``."""


class Target(NamedTuple):
    """One thing to be fuzzed. share: executions it gets of those of ``make test`` or ``make verify``."""

    name: str
    seeds: tuple[bytes, ...]
    one: Callable[[bytes], Hashable | None]
    tokens: tuple[bytes, ...]
    share: int


class Report(NamedTuple):
    """What a run did. outcomes: different ones, as the target tells them apart. kept: files of inputs that failed."""

    target: str
    runs: int
    seconds: float
    outcomes: int
    kept: tuple[Path, ...]
    errors: tuple[str, ...]

    def __str__(self) -> str:
        speed = self.runs / max(self.seconds, 1e-9)
        line = (
            f"{self.target}: {self.runs} executions in {self.seconds:.1f} s ({speed:.0f}/s), "
            f"{self.outcomes} outcomes, {len(self.errors)} failures"
        )
        return "\n".join([line, *(f"  kept {path}" for path in self.kept), *self.errors])


def names() -> list[str]:
    """Every target of this folder."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in _NO_TARGETS)


def target(name: str) -> Target:
    """A target by name. Raises ``ModuleNotFoundError`` for an unknown one."""
    module = importlib.import_module(f"verification.fuzz.{name}")
    seeds = tuple(path.read_bytes() for path in sorted(Path(module.SEEDS).iterdir()))
    if not seeds:
        msg = f"{module.SEEDS} holds no seeds"
        raise ValueError(msg)
    return Target(
        name, seeds, module.one, tuple(getattr(module, "TOKENS", ())), int(getattr(module, "SHARE", _DEFAULT_SHARE))
    )


def fuzz(chosen: Target, *, runs: int, seed: int, keep: Path = KEPT, until_s: float = float("inf")) -> Report:
    """``runs`` executions, the seeds themselves first, or as many as fit into ``until_s`` seconds."""
    rng = random.Random(f"{chosen.name} {seed}")
    mutator = Mutator(rng, chosen.tokens)
    pool = list(chosen.seeds)
    outcomes: set[Hashable] = set()
    failures: dict[str, tuple[Path, str]] = {}
    started = time.monotonic()
    done = 0
    with _alarm() as arm:
        for data in _inputs(chosen.seeds, mutator, pool, runs):
            if done % 256 == 0 and time.monotonic() - started > until_s:
                break
            done += 1
            arm(LIMIT_S)
            try:
                outcome = chosen.one(data)
            except (Exception, Hang) as error:  # noqa: BLE001  whatever it is, it is what we look for
                arm(0)
                place = _place_of(error)
                if place not in failures:
                    failures[place] = (_kept(keep / chosen.name, data), _words_of(error))
                if len(failures) >= _MOST_FAILURES:
                    break
                continue
            if outcome is not None and outcome not in outcomes:
                outcomes.add(outcome)
                if len(pool) < _MOST_POOL:
                    pool.append(data)
        arm(0)
    return Report(
        chosen.name,
        done,
        time.monotonic() - started,
        len(outcomes),
        tuple(path for path, _ in failures.values()),
        tuple(f"  {words} at {place}" for place, (_, words) in failures.items()),
    )


def _inputs(seeds: Sequence[bytes], mutator: Mutator, pool: Sequence[bytes], runs: int) -> Iterator[bytes]:
    for number in range(runs):
        yield seeds[number] if number < len(seeds) else mutator.mutated(pool)


@contextmanager
def _alarm() -> Iterator[Callable[[float], object]]:
    """A function that arms (seconds) or disarms (0) the alarm."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        msg = f"no end within {LIMIT_S} s of processor time"
        raise Hang(msg)

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_PROF, seconds)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _place_of(error: BaseException) -> str:
    """The innermost frames: one failure is reported once, however many inputs reach it."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))


def _words_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _kept(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path
