"""``python -m verification.scope``: every state of lease, guard, flock and jobs within a scope."""

import argparse
import sys

from verification.scope.explore import explore
from verification.scope.graph import Found
from verification.scope.nodes import Machines
from verification.scope.steps import KINDS, Step, faults_of
from verification.scope.walk import Walked, walk_many


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.scope", description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, choices=(1, 2))
    parser.add_argument("--faults", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of faults: %(default)s")
    parser.add_argument("--kept", action="store_true", help="runners outlive a hand-over")
    parser.add_argument(
        "--at-rest",
        action="store_true",
        help="faults and slow steps only when all that is prompt has come: fewer states, more faults",
    )
    parser.add_argument("--twins", action="store_true", help="compare the futures of states that are taken for one")
    parser.add_argument("--max-states", type=int, default=0, help="stop there; 0 = never")
    parser.add_argument(
        "--walks", type=int, default=0, help="go through it so often by chance instead of searching all of it"
    )
    parser.add_argument("--first", type=int, default=0, help="the seed of the first walk")
    asked = parser.parse_args()
    machines, names = Machines(is_kept=asked.kept), faults_of(asked.only)
    found: Found[Step] | Walked
    if asked.walks:
        found = walk_many(
            machines,
            workers=asked.workers,
            jobs=asked.jobs,
            max_faults=asked.faults,
            names=names,
            walks=asked.walks,
            first=asked.first,
            say=lambda reported: print(reported, flush=True),
        )
    else:
        found = explore(
            machines,
            workers=asked.workers,
            jobs=asked.jobs,
            max_faults=asked.faults,
            names=names,
            max_states=asked.max_states,
            is_at_rest=asked.at_rest,
            are_twins_compared=asked.twins,
        )
    print(found)
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
