"""The real runner around a toy engine, so that a test of the lease does not import TensorFlow each time.

Only what computes is replaced: half_plus_two, a model that is busy for as long as its input says, one that needs
the device for itself alone (``large``) and one that no device is large enough for (``huge``).
"""

import struct
import threading
from collections.abc import Sequence

from signalbox import tensors
from signalbox.errors import NotFound, OutOfMemory
from signalbox.messages import Signature
from signalbox.tensors import Tensor
from workers import runner


class Toy:
    """What a load reports."""

    size_bytes, warmed = 1, 0

    def __init__(self) -> None:
        self.signatures: dict[str, Signature] = {}


class ToyEngine:
    """Knows the models ``half``, ``slow``, ``large`` and ``huge``, whatever path they are said to lie at."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()

    def load(self, model: str, version: int, path: str, *, is_warm: bool, digest: str) -> Toy:
        if model == "huge" or (model == "large" and self.loaded):
            raise OutOfMemory
        self.loaded.add(model)
        return Toy()

    def unload(self, model: str, version: int) -> None:
        self.loaded.discard(model)

    def run(
        self,
        model: str,
        version: int,
        signature: str,
        jobs: Sequence[bytes],
        outputs: tuple[str, ...],
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        if model not in self.loaded:
            raise NotFound(model)
        frames = []
        for job in jobs:
            (x,) = struct.unpack("<f", tensors.decode(job)[0].data)
            if model == "slow":
                threading.Event().wait(x)
            y = x if model == "slow" else x / 2 + 2
            frames.append(tensors.encode([Tensor("y", "float32", (1,), struct.pack("<f", y))]))
        return frames, {}


if __name__ == "__main__":
    runner.main(lambda *_: ToyEngine())
