"""The real runner, sandbox and all, around an engine that computes half plus two on the GPU with PyTorch.

What it loads is one tensor as large as ``TF_GPU_BALLAST_MB`` says, so that memory has to come back after its death.
"""

import os
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, Final

from signalbox.program.errors import NotFound
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor
from signalbox.wire.warmups import WarmUp
from workers.runner import process
from workers.runner.frames import LoadReport

BALLAST: Final = "TF_GPU_BALLAST_MB"
"""A runner inherits few variables; those of TensorFlow are among them."""
_SIDE: Final = 2048


class TorchEngine:
    """Touches the GPU with the first load, not before: until then another runner may be inside."""

    def __init__(self) -> None:
        self._torch: Any = import_module("torch")
        self._loaded: dict[tuple[str, int], tuple[Any, Any]] = {}

    def load(
        self, model: str, version: int, path: str, *, is_warm: bool, digest: str, warm_ups: Sequence[WarmUp]
    ) -> LoadReport:
        size = int(os.environ.get(BALLAST, "0")) << 20
        ballast = self._torch.ones(size, dtype=self._torch.uint8, device="cuda")
        square = self._torch.rand(_SIDE, _SIDE, device="cuda")
        self._torch.cuda.synchronize()
        self._loaded[model, version] = ballast, square
        return LoadReport(size, 0, {})

    def unload(self, model: str, version: int) -> None:
        self._loaded.pop((model, version), None)

    def without_tensor_float_32(self) -> AbstractContextManager[None]:
        return nullcontext()

    def run(
        self, model: str, version: int, signature: str, jobs: Sequence[bytes], outputs: tuple[str, ...]
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        if (model, version) not in self._loaded:
            raise NotFound(model)
        _, square = self._loaded[model, version]
        float((square @ square).sum())
        given = [struct.unpack("<f", tensors.decode(job)[0].data)[0] for job in jobs]
        found = (self._torch.tensor(given, device="cuda") / 2 + 2).tolist()
        return [tensors.encode([Tensor("y", "float32", (1,), struct.pack("<f", y))]) for y in found], {}


if __name__ == "__main__":
    process.main(lambda *_: TorchEngine())
