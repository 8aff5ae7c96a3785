"""The real runner around a toy engine, so that a test of the lease does not import TensorFlow each time.

Only what computes is replaced: half_plus_two, a model that is busy for as long as its input says, one that has the
interpreter's lock meanwhile (``grip``), one that needs the device for itself alone (``large``), one that no device is
large enough for (``huge``), and one whose versions load as slowly, as largely and as badly as files beside them say
(``rolling``).
"""

import ctypes
import os
import struct
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from signalbox.program.errors import ModelError, NotFound, OutOfMemory
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor
from workers.runner import process
from workers.runner.frames import LoadReport

_libc = ctypes.PyDLL(None)
"""Called without letting the interpreter's lock go."""


class ToyEngine:
    """Knows the models ``half``, ``slow``, ``grip``, ``large``, ``huge`` and ``rolling``: it answers with its version.

    What lies at a path matters to ``rolling`` alone: its load waits while ``wait`` is there, fails if ``broken`` is,
    dies if ``fatal`` is, uses the memory up beside others if ``alone`` is, and takes as many bytes as ``size`` says.
    """

    def __init__(self) -> None:
        self.loaded: set[str] = set()

    def load(self, model: str, version: int, path: str, *, is_warm: bool, digest: str) -> LoadReport:
        if model == "huge" or (model == "large" and self.loaded):
            raise OutOfMemory
        if self.loaded and (Path(path) / "alone").exists():
            raise OutOfMemory
        report = LoadReport(_rolling(Path(path)) if model == "rolling" else 1, 0, {})
        self.loaded.add(_key(model, version))
        return report

    def unload(self, model: str, version: int) -> None:
        self.loaded.discard(_key(model, version))

    def without_tensor_float_32(self) -> AbstractContextManager[None]:
        return nullcontext()

    def run(
        self, model: str, version: int, signature: str, jobs: Sequence[bytes], outputs: tuple[str, ...]
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        if _key(model, version) not in self.loaded:
            raise NotFound(model)
        frames = []
        for job in jobs:
            (x,) = struct.unpack("<f", tensors.decode(job)[0].data)
            if model == "slow":
                threading.Event().wait(x)
            elif model == "grip":
                _libc.usleep(int(x * 1e6))
            y = {"slow": x, "grip": x, "rolling": version}.get(model, x / 2 + 2)
            frames.append(tensors.encode([Tensor("y", "float32", (1,), struct.pack("<f", y))]))
        return frames, {}


def _key(model: str, version: int) -> str:
    return f"{model}/{version}" if model == "rolling" else model


def _rolling(path: Path) -> int:
    if (path / "fatal").exists():
        os._exit(3)
    while (path / "wait").exists():
        threading.Event().wait(0.01)
    if (path / "broken").exists():
        raise ModelError("broken")
    size = path / "size"
    return int(size.read_text()) if size.exists() else 1


if __name__ == "__main__":
    process.main(lambda *_: ToyEngine())
