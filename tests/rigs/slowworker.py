"""``python -m tests.rigs.slowworker``: the worker as it is, its runners :mod:`tests.rigs.slowrunner`."""

import sys
from typing import Final

import workers.device.guardedrunner
from workers.main import main

PROGRAM: Final = "tests.rigs.slowworker"

if __name__ == "__main__":
    workers.device.guardedrunner.RUNNER = "tests.rigs.slowrunner"
    sys.exit(main())
