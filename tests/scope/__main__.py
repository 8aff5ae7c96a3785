"""``python -m tests.scope``: every state of lease, guard, flock and jobs within a scope."""

import argparse
import sys

from tests.scope.explore import explore
from tests.scope.nodes import Machines
from tests.scope.steps import KINDS, faults_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scope", description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, choices=(1, 2))
    parser.add_argument("--faults", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of faults: %(default)s")
    parser.add_argument("--kept", action="store_true", help="runners outlive a hand-over")
    parser.add_argument(
        "--twins", action="store_true", help="compare the futures of states that are taken for one"
    )
    parser.add_argument("--max-states", type=int, default=0, help="stop there; 0 = never")
    asked = parser.parse_args()
    found = explore(
        Machines(is_kept=asked.kept), workers=asked.workers, jobs=asked.jobs,
        max_faults=asked.faults, names=faults_of(asked.only), max_states=asked.max_states,
        are_twins_compared=asked.twins,
    )  # fmt: skip
    print(found)
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
