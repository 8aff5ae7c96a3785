"""``python -m verification.chaos.toyworker``: the worker, whose runners are :mod:`verification.chaos.toyrunner`."""

import sys

import workers.device.guardedrunner
import workers.device.leased
from tests.rigs.unstaged import Unstaged
from workers.main import main

if __name__ == "__main__":
    workers.device.guardedrunner.RUNNER = "verification.chaos.toyrunner"
    vars(workers.device.leased)["Staging"] = Unstaged  # its versions lie nowhere
    sys.exit(main())
