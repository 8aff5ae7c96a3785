"""The real runner around a toy engine, so that a test of a worker does not import TensorFlow each time.

Only what computes is replaced: half_plus_two, a model that is busy for as long as its input says (``slow``), one that
has the interpreter's lock meanwhile (``grip``), one that dies of an input below -100 (``fatal``), one that needs the
device for itself alone (``large``), one that no device is large enough for (``huge``), and one whose versions load as
slowly, as largely and as badly as files beside them say (``rolling``). The worker around it:
:mod:`tests.rigs.lightworker`.
"""

import ctypes
import os
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from signalbox.program.errors import ModelError, NotFound, OutOfMemory
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor
from signalbox.wire.warmups import WarmUp
from workers.runner import process, savedmodel
from workers.runner.frames import LoadReport

KIND = "toy"
"""A file of this name in a version's folder says which of them it is; else the model's name does, up to a ``_``."""
LIE = "lie"
"""A file of this name says which digest is told for it, whatever the files are."""
_libc = ctypes.PyDLL(None)
"""Called without letting the interpreter's lock go."""


class ToyEngine:
    """Runs ``half``, ``slow``, ``grip``, ``fatal``, ``large``, ``huge``, and ``rolling``, which tells its version.

    x: float32 ``[n]``; y as many. A version takes as many bytes as its file ``size`` says. The load of ``rolling``
    waits while ``wait`` is there, and the file that it names, fails if ``broken`` is, dies if ``fatal`` is, and uses
    the memory up beside others if ``alone`` is.
    """

    def __init__(self) -> None:
        self.loaded: dict[str, str] = {}

    def load(
        self, model: str, version: int, path: str, *, is_warm: bool, digest: str, warm_ups: Sequence[WarmUp]
    ) -> LoadReport:
        if model == "huge" or (model == "large" and self.loaded):
            raise OutOfMemory
        if self.loaded and (Path(path) / "alone").exists():
            raise OutOfMemory
        kind = Path(path) / KIND
        began = time.perf_counter()
        found = savedmodel.manifest(Path(path))[1] if kind.exists() else ""
        if (Path(path) / LIE).exists():
            found = (Path(path) / LIE).read_text()
        verify_s = time.perf_counter() - began
        if found and digest not in {"", found}:
            raise ModelError("The files are not those that were registered: their digest differs.")
        size = _rolling(Path(path)) if _is_rolling(model) else _size(Path(path))
        report = LoadReport(size, 0, {}, digest=found, verify_s=verify_s)
        self.loaded[_key(model, version)] = kind.read_text() if kind.exists() else model.partition("_")[0]
        return report

    def unload(self, model: str, version: int) -> None:
        self.loaded.pop(_key(model, version), None)

    def without_tensor_float_32(self) -> AbstractContextManager[None]:
        return nullcontext()

    def run(
        self, model: str, version: int, signature: str, jobs: Sequence[bytes], outputs: tuple[str, ...]
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        kind = self.loaded.get(_key(model, version))
        if kind is None:
            raise NotFound(model)
        frames = []
        for job in jobs:
            data = tensors.decode(job)[0].data
            x = struct.unpack(f"<{len(data) // 4}f", data)
            if kind == "slow":
                threading.Event().wait(max(x))
            elif kind == "fatal" and min(x) < -100.0:
                os._exit(3)
            elif kind == "grip":
                _libc.usleep(int(max(x) * 1e6))
            y = x if kind in {"slow", "grip"} else [version if kind == "rolling" else each / 2 + 2 for each in x]
            frames.append(tensors.encode([Tensor("y", "float32", (len(x),), struct.pack(f"<{len(x)}f", *y))]))
        return frames, {}


def _key(model: str, version: int) -> str:
    return f"{model}/{version}" if _is_rolling(model) else model


def _is_rolling(model: str) -> bool:
    return model.partition("_")[0] == "rolling"


def _rolling(path: Path) -> int:
    if (path / "fatal").exists():
        os._exit(3)
    wait = path / "wait"
    while wait.exists() and Path(wait.read_text() or wait).exists():
        threading.Event().wait(0.01)
    if (path / "broken").exists():
        raise ModelError("broken")
    return _size(path)


def _size(path: Path) -> int:
    size = path / "size"
    return int(size.read_text()) if size.exists() else 1


if __name__ == "__main__":
    process.main(lambda *_: ToyEngine())
