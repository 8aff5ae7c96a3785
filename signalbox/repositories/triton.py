"""What a ``config.pbtxt`` says, the text with which Triton configures a model: the inspector reads it, the console
judges it."""

from typing import Final

import msgspec

CONFIG: Final = "config.pbtxt"
MOST_CONFIG_BYTES: Final = 128 * 1024
"""Of a file. Triton's own examples have some hundred bytes."""


class TritonTensor(msgspec.Struct, frozen=True):
    """dtype: as on our wire, empty = not given. dims: without the batch where ``max_batch_size`` is above 0."""

    name: str
    dtype: str = ""
    dims: tuple[int, ...] = ()


class TritonFill(msgspec.Struct, frozen=True):
    """An input of a warm-up. fill: ``zero``, ``random``, or empty: it lies in a file."""

    dtype: str
    dims: tuple[int, ...]
    fill: str = ""


class TritonWarmUp(msgspec.Struct, frozen=True):
    """A request to be made up and run ``count`` times. rows: of a batch, 0 = Triton does not run it."""

    inputs: dict[str, TritonFill]
    rows: int = 0
    count: int = 1
    name: str = ""


class TritonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """fields: names of all that the file sets; of ``dynamic_batching`` and ``parameters`` with a dot and the part.

    signature, tags: of the graph, as ``parameters`` choose them. latest: how many versions, 0 = not said; specific:
    which; neither: all where ``version_policy`` is set. timeout_us, queue: of the default queue policy, 0 = none.
    """

    fields: tuple[str, ...] = ()
    name: str = ""
    platform: str = ""
    backend: str = ""
    max_batch_size: int = 0
    inputs: tuple[TritonTensor, ...] = ()
    outputs: tuple[TritonTensor, ...] = ()
    delay_us: int = 0
    timeout_us: int = 0
    queue: int = 0
    latest: int = 0
    specific: tuple[int, ...] = ()
    signature: str = ""
    tags: str = ""
    folder: str = ""
    warm_ups: tuple[TritonWarmUp, ...] = ()

    @property
    def is_joining(self) -> bool:
        """Whether Triton would run requests of several callers together."""
        return self.max_batch_size > 1 and "dynamic_batching" in self.fields
