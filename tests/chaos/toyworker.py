"""``python -m tests.chaos.toyworker``: the worker as it is, whose runners compute with :mod:`tests.chaos.toyrunner`."""

import sys

import workers.device.keeper
import workers.device.lane
from tests.unstaged import Unstaged
from workers.main import main

if __name__ == "__main__":
    workers.device.keeper.RUNNER = "tests.chaos.toyrunner"
    vars(workers.device.lane)["Staging"] = Unstaged  # its versions lie nowhere
    sys.exit(main())
