"""``python -m benchmarks``: the figures of issue-sized promises, measured on this machine."""

import argparse
import asyncio
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks import bare, console, day, fairness, front
from signalbox.errors import SignalboxError
from signalbox.up.tyk import find

PARTS: Final = ("edge", "tyk", "handover", "fairness", "console")


def main() -> int:
    """Run the parts asked for. Returns the exit status."""
    if sys.argv[1:2] == ["day"]:  # an hour, so no part of all
        return day.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (all); or day, alone")
    parser.add_argument("--seconds", type=float, default=8.0, help="per figure (%(default)s)")
    options = parser.parse_args()
    wanted = options.parts or PARTS
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    try:
        for part in PARTS:
            if part in wanted:
                print(f"\n== {part}", flush=True)
                _PARTS[part](options.seconds)
    except SignalboxError as error:
        print(f"benchmarks: {error.public_message}", file=sys.stderr)
        return 1
    return 0


def _edge(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(front.measure(Path(folder), seconds=seconds))


def _tyk(seconds: float) -> None:
    programs = find("auto")
    if programs is None:
        print("skipped: no Tyk here (SIGNALBOX_TYK_BIN, or tyk and redis-server on the path)")
        return
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        ours = asyncio.run(front.measure(Path(folder) / "ours", seconds=seconds, tyk=programs))
        ceiling = asyncio.run(bare.measure(Path(folder) / "bare", programs, seconds=seconds))
    for in_flight, rate in ours.items():
        share = rate / ceiling[in_flight]
        print(f"share of a plugin that only answers, {in_flight} in flight: {share:.2f}")


def _handover(_seconds: float) -> None:
    sys.argv[1:] = []  # it reads a command line of its own
    runpy.run_module("benchmarks.handover", run_name="__main__")


def _fairness(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(fairness.measure(Path(folder), seconds=seconds))


def _console(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
        asyncio.run(console.measure(Path(folder), seconds=seconds))


_PARTS: Final = {
    "edge": _edge,
    "tyk": _tyk,
    "handover": _handover,
    "fairness": _fairness,
    "console": _console,
}

if __name__ == "__main__":
    sys.exit(main())
