"""``python -m verification.chaos``: a storm over a real stack, one fault repeated, or a judgement of an old run."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import uvloop

from verification.chaos.evidence.history import History
from verification.chaos.scenarios import catalogue, report, storm
from verification.chaos.scenarios.scene import CALLERS

T = TypeVar("T")
STORM_CALLERS = 20


def main() -> int:
    """0 when every law held."""
    asked = _parser().parse_args()
    if asked.what == "judge":
        return _judged(History.of_run(asked.folder))
    seed = asked.seed if asked.seed is not None else time.time_ns() % 1_000_000
    folder = asked.folder or Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
    print(f"seed {seed}, artefacts in {folder}", flush=True)
    if asked.what in catalogue.SCENARIOS:
        found = _run(catalogue.run(asked.what, folder, asked.rounds, seed))
        print(f"{asked.what}: seed {seed}")
        return _judged(found)
    is_storm = asked.what == "storm"
    plan = storm.Plan(
        seed=seed,
        minutes=0.0 if asked.faults or asked.jobs else asked.minutes,
        faults=asked.faults,
        jobs=asked.jobs,
        nodes=asked.nodes,
        workers=asked.workers,
        engine=asked.engine,
        at_most=asked.at_most,
        only=tuple(filter(None, asked.only.split(","))),
        callers=asked.callers or (STORM_CALLERS if is_storm else CALLERS),
        has_disks=asked.disks,
        is_sample=asked.sample,
    )
    outcome = _run(storm.storm(plan, folder) if is_storm else storm.production(plan, folder, asked.up))
    print(report.report(outcome), flush=True)
    (folder / "summary.json").write_text(json.dumps(report.summary(outcome), indent=1))
    if outcome.violations:
        print(f"FAILED: seed {seed}; artefacts kept in {folder}", flush=True)
    elif is_storm and not asked.folder:
        shutil.rmtree(folder)
    return 1 if outcome.violations else 0


def _run(work: Coroutine[None, None, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _judged(found: History) -> int:
    """1 when a law was broken; prints the figures, what broke a law, and which laws had nothing to look at."""
    violations = catalogue.judge(found)
    print("\n".join(report.figures(found)))
    for violation in violations[:40]:
        print(f"VIOLATION {violation.law}: {violation.text}")
    return 1 if violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.chaos", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("storm", "production", "judge", *catalogue.SCENARIOS), default="storm"
    )
    parser.add_argument("--rounds", type=int, help="of a scenario; many if not given")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (%(default)s)")
    parser.add_argument("--seed", type=int, help="of faults and load; any if not given")
    parser.add_argument("--at-most", type=float, default=0.0, help="minutes, whatever was reached")
    parser.add_argument("--faults", type=int, default=0, help="at least so many, whatever the time")
    parser.add_argument("--jobs", type=int, default=0, help="at least so many, whatever the time")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of NATS (%(default)s)")
    parser.add_argument("--workers", type=int, default=3, help="on one GPU (%(default)s)")
    parser.add_argument("--engine", choices=("tensorflow", "toy", "mixed"), default="mixed")
    parser.add_argument("--only", default="", help="kinds of fault, with commas")
    parser.add_argument("--callers", type=int, default=0, help=f"per account ({STORM_CALLERS}; production: {CALLERS})")
    parser.add_argument("--up", type=Path, default=storm.UP, help="of a production stack (%(default)s)")
    parser.add_argument("--sample", action="store_true", help="production: one fault of each kind")
    parser.add_argument("--disks", action="store_true", help="whose power is cut, one a node")
    parser.add_argument("--folder", type=Path, help="where the run lives and stays")
    return parser


if __name__ == "__main__":
    sys.exit(main())
