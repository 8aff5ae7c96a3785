"""Very many models of which few fit into memory, called as Zipf's law says; minutes for each thousand of them.

toys: all of it is real but what computes. Hits are compared with those of the same policy computed for the same calls,
memory at the end with that after a tenth. tensorflow: SavedModels, of which one worker has few in memory: no error.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.zipf import served, toys
from signalbox.program.errors import SignalboxError


def main(arguments: Sequence[str]) -> int:
    """The command. Returns 0 where every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks zipf", description=__doc__)
    add = parser.add_argument
    add("--models", type=int, nargs="*", default=(2_000, 10_000), help="toys, one fleet after the other (2000 10000)")
    add("--requests", type=int, default=20_000, help="calls of them (%(default)s)")
    add("--only-toys", action="store_true", help="nothing with TensorFlow")
    asked = parser.parse_args(arguments)
    lines = []
    try:
        for models in asked.models:
            with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
                lines += asyncio.run(toys.measure(Path(folder), models=models, requests=asked.requests))
        if not asked.only_toys:
            with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as folder:
                lines += asyncio.run(served.measure(Path(folder)))
    except (SignalboxError, TimeoutError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", *lines]), flush=True)
    return 1 if any("NOT MET" in each for each in lines) else 0
