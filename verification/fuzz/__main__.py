"""``python -m verification.fuzz TARGET|all --runs N --seed S``: executions a second, and what broke, if anything.

``python -m verification.fuzz TARGET --input FILE`` runs one kept input again, with its traceback.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from verification.fuzz import harness

_SILENCE: Final = logging.CRITICAL
"""What refused inputs would log is not what this program has to say."""


def main(arguments: Sequence[str]) -> int:
    """Returns 1 if a promise was broken."""
    asked = _parser().parse_args(arguments)
    chosen = [harness.target(n) for n in (harness.names() if asked.target == "all" else [asked.target])]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_SILENCE))
    if asked.input:
        for target in chosen:
            print(f"{target.name}: {target.one(Path(asked.input).read_bytes())}")
        return 0
    shares = sum(target.share for target in chosen)
    failed = done = 0
    for target in chosen:
        part = target.share / shares
        report = harness.fuzz(
            target, runs=round(asked.runs * part), seed=asked.seed, keep=Path(asked.keep), until_s=asked.seconds * part
        )
        print(report, flush=True)
        failed += len(report.errors)
        done += report.runs
    print(f"{done} executions, seed {asked.seed}, {failed} failures")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz", description=__doc__)
    parser.add_argument("target", choices=["all", *harness.names()])
    parser.add_argument("--runs", type=int, default=100_000, help="executions in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--keep", default=str(harness.KEPT), help="folder for inputs that failed")
    parser.add_argument("--input", help="run this file once instead")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
