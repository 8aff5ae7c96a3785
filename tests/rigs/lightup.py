"""``python -m tests.rigs.lightup up``: ``signalbox up``, its workers :mod:`tests.rigs.lightworker`."""

import sys

from signalbox.ops import cli
from signalbox.ops.up import main
from signalbox.ops.up.child import Spec
from signalbox.ops.up.stack import UpStack
from tests.rigs import lightworker

PROGRAM = "tests.rigs.lightup"


class LightStack(UpStack):
    """A stack that imports no TensorFlow."""

    def _made(self, spec: Spec) -> Spec:
        return lightworker.instead(spec)


if __name__ == "__main__":
    vars(main)["UpStack"] = LightStack
    sys.exit(cli.main())
