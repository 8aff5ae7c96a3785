"""``python -m tests.scope``: every state of lease, guard, flock and jobs within a scope."""

import argparse
import sys

from tests.scope.explore import explore
from tests.scope.nodes import Machines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scope", description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, choices=(1, 2))
    parser.add_argument("--faults", type=int, default=1)
    parser.add_argument("--kept", action="store_true", help="runners outlive a hand-over")
    parser.add_argument("--max-states", type=int, default=0, help="stop there; 0 = never")
    asked = parser.parse_args()
    found = explore(
        Machines(is_kept=asked.kept), workers=asked.workers, jobs=asked.jobs,
        max_faults=asked.faults, max_states=asked.max_states,
    )  # fmt: skip
    print(found)
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
