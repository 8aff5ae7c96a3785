"""``python -m verification.chaos.rig.toyworker``: the worker, its runners :mod:`verification.chaos.rig.toyrunner`."""

import sys

import workers.device.guardedrunner
from tests.rigs.unstaged import Unstaged
from workers.main import main

if __name__ == "__main__":
    workers.device.guardedrunner.RUNNER = "verification.chaos.rig.toyrunner"
    vars(workers.device.guardedrunner)["Staging"] = Unstaged  # its versions lie nowhere
    sys.exit(main())
