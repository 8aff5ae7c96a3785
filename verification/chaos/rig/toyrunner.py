"""The real runner around a toy engine, with as much resident memory as a test asks for.

Only what computes is replaced, so that thousands of runners can die on two cores. Memory matters because
the kernel needs time to take it back, which is part of every take-over.
"""

import os

from tests.rigs.lightrunner import ToyEngine
from workers.runner import process

BALLAST = "TF_CHAOS_BALLAST_MB"
"""A runner inherits few variables; those of TensorFlow are among them."""


def _engine(*_: object) -> ToyEngine:
    ballast = bytearray(int(os.environ.get(BALLAST, "0")) << 20)
    for page in range(0, len(ballast), 4096):  # touched, or it would not be resident
        ballast[page] = 1
    engine = ToyEngine()
    vars(engine)["ballast"] = ballast
    return engine


if __name__ == "__main__":
    process.main(_engine)
