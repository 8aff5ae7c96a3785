"""The toy runner of :mod:`tests.rigs.lightrunner` on a device that takes three times as long for each run."""

from collections.abc import Sequence
from typing import Final

from tests.rigs.lightrunner import ToyEngine
from workers.runner import process

TIMES: Final = 3


class SlowEngine(ToyEngine):
    """Runs each batch as often."""

    def run(
        self, model: str, version: int, signature: str, jobs: Sequence[bytes], outputs: tuple[str, ...]
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        for _ in range(TIMES - 1):
            super().run(model, version, signature, jobs, outputs)
        return super().run(model, version, signature, jobs, outputs)


if __name__ == "__main__":
    process.main(lambda *_: SlowEngine())
