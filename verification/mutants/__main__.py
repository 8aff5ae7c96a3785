"""``python -m verification.mutants [N...] [--jobs J]``: put each known bug into a copy of the code and see it found.

A command must pass on the copy as it is before its failure with the patch counts. A patch that does not
apply, and a command that does not pass unpatched, are errors and not kills.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from verification.mutants.catalog import MUTANTS, Mutant

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 900
TAIL: Final = 1_500


class Verdict(NamedTuple):
    """word: killed, survived or error. seconds: of the command with the patch."""

    mutant: Mutant
    word: str
    seconds: float
    said: str = ""


def tracked() -> list[str]:
    """What git knows and is there, as it is in the working tree."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@contextmanager
def copy_of_the_code() -> Iterator[Path]:
    """A scratch copy, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    folder.chmod(0o755)  # some tests run programs as another user
    try:
        for name in tracked():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apply(patch: Path, folder: Path, *how: str) -> str:
    """What git says where it does not apply; empty where it does."""
    done = subprocess.run(
        ["git", "apply", *how, str(patch)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )
    return done.stderr if done.returncode else ""


def run(command: tuple[str, ...], folder: Path) -> tuple[bool, float, str]:
    """Whether it passed, how long it took, and the end of what it said. Too long is a failure."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired as late:
        return (False, time.monotonic() - began, (late.stdout or b"").decode(errors="replace")[-TAIL:])
    said = done.stdout.decode(errors="replace")[-TAIL:]
    return done.returncode == 0, time.monotonic() - began, said


class Bench:
    """Some copies of the code, and which commands passed on them unpatched."""

    def __init__(self, copies: list[Path]) -> None:
        self.copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for folder in copies:
            self.copies.put(folder)
        self.passed: set[tuple[str, ...]] = set()

    def judge(self, mutant: Mutant) -> Verdict:
        """Try one mutant in a free copy."""
        folder = self.copies.get()
        try:
            return self.judged(mutant, folder)
        finally:
            self.copies.put(folder)

    def judged(self, mutant: Mutant, folder: Path) -> Verdict:
        if mutant.command not in self.passed:
            is_passed, seconds, said = run(mutant.command, folder)
            if not is_passed:
                return Verdict(mutant, "error", seconds, f"does not pass unpatched:\n{said}")
            self.passed.add(mutant.command)
        if said := apply(mutant.patch, folder):
            return Verdict(mutant, "error", 0.0, said)
        try:
            is_passed, seconds, said = run(mutant.command, folder)
        finally:
            apply(mutant.patch, folder, "--reverse")
        if is_passed:
            return Verdict(mutant, "survived", seconds, said)
        return Verdict(mutant, "killed", seconds, said)


def main() -> int:
    """0 when every mutant asked for was killed."""
    parser = argparse.ArgumentParser(prog="python -m verification.mutants", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, help="which; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--verbose", action="store_true", help="say what each command said")
    asked = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if mutant.number in (asked.numbers or range(1000))]
    with ExitStack() as stack:
        copies = [stack.enter_context(copy_of_the_code()) for _ in range(asked.jobs)]
        bench = Bench(copies)
        with ThreadPoolExecutor(asked.jobs) as pool:
            verdicts = []
            for verdict in pool.map(bench.judge, chosen):
                verdicts.append(verdict)
                mutant = verdict.mutant
                print(
                    f"{mutant.number:3}  {mutant.name:56} {verdict.seconds:7.1f} s  {verdict.word}",
                    flush=True,
                )
                if asked.verbose or verdict.word != "killed":
                    print(verdict.said, flush=True)
    killed = sum(verdict.word == "killed" for verdict in verdicts)
    print(f"{killed}/{len(chosen)} killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
