"""``python -m verification.gpu.torchworker``: the worker, its runners :mod:`verification.gpu.torchrunner`."""

import sys

import workers.device.guardedrunner
from tests.rigs.unstaged import Unstaged
from workers.main import main

if __name__ == "__main__":
    workers.device.guardedrunner.RUNNER = "verification.gpu.torchrunner"
    vars(workers.device.guardedrunner)["Staging"] = Unstaged  # its versions lie nowhere
    sys.exit(main())
