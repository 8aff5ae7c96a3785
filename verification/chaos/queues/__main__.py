"""``python -m verification.chaos.queues``: queues under faults, and the laws over what was seen."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from verification.chaos.queues.run import ITEMS, judge, report, run


def main() -> int:
    """0 when every law held."""
    parser = argparse.ArgumentParser(prog="python -m verification.chaos.queues", description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS, help="put in all; each fault once for %(default)s of them")
    parser.add_argument("--seed", type=int, help="of faults and load; any if not given")
    parser.add_argument("--folder", type=Path, help="where the run lives and stays")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else time.time_ns() % 1_000_000
    folder = asked.folder or Path(tempfile.mkdtemp(prefix=f"queues-{seed}-"))
    print(f"seed {seed}, artefacts in {folder}", flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run(folder, asked.items, seed))
    print(report(found), flush=True)
    violations = judge(found)
    for violation in violations[:40]:
        print(f"VIOLATION {violation}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
