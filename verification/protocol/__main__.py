"""``python -m verification.protocol``: every state of the protocol of lease, guard and flock, with no time in it."""

import argparse
import sys

from verification.protocol.mirror import compare
from verification.protocol.search import explore
from verification.protocol.steps import ALL_KINDS
from verification.scope.nodes import Machines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.protocol", description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--faults", type=int, default=2)
    kinds = ",".join(sorted(ALL_KINDS))
    parser.add_argument("--only", default=kinds, help="kinds of faults: %(default)s")
    parser.add_argument(
        "--mirror",
        action="store_true",
        help="search the production machines too, and show where they are in a state that the protocol does not know",
    )
    asked = parser.parse_args()
    scope = {"workers": asked.workers, "jobs": asked.jobs, "faults": asked.faults}
    only = frozenset(asked.only.split(","))
    if asked.mirror:
        compared = compare(Machines(is_kept=True), **scope, kinds=only)
        print(compared)
        return 1 if compared.strange else 0
    found = explore(**scope, kinds=only)
    print(found)
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
