"""What becomes of ``model_warmup`` in a ``config.pbtxt``: requests that workers make up, within bounds."""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from signalbox.repositories.triton import TritonConfig, TritonFill, TritonWarmUp
from signalbox.wire.tensors import DTYPES, MAX_RANK
from signalbox.wire.warmups import WarmUp, WarmUpInput

MOST: Final = 16
"""Samples of a model."""
MOST_RUNS: Final = 100
"""Of one sample."""
MOST_INPUTS: Final = 64
MOST_ELEMENTS: Final = 8 * 1024 * 1024
"""Of all inputs of one sample: at most 64 MiB."""
_MOST_SHOWN: Final = 60


class WarmUps(NamedTuple):
    """taken: what workers run. left: the other samples, by the names that the file gives them, and why."""

    taken: tuple[WarmUp, ...] = ()
    left: tuple[str, ...] = ()


def warm_ups(config: TritonConfig) -> WarmUps:
    """The samples of a file."""
    taken, left = [], []
    for at, sample in enumerate(config.warm_ups):
        name = sample.name[:_MOST_SHOWN] or f"sample {at + 1}"
        if at == MOST:
            left.append(f"at most {MOST} samples are run")
            break
        if why := next(_faults(sample, config), ""):
            left.append(f'"{name}": {why}')
        else:
            rows = (sample.rows,) if config.max_batch_size else ()
            inputs = {
                each: WarmUpInput(one.dtype, (*rows, *one.dims), one.fill == "random")
                for each, one in sample.inputs.items()
            }
            taken.append(WarmUp(name, inputs, sample.count))
    return WarmUps(tuple(taken), tuple(left))


def _faults(sample: TritonWarmUp, config: TritonConfig) -> Iterator[str]:
    """Why a sample is not run."""
    if not sample.rows:
        yield "batch_size is 0"
    if sample.rows > 1 and not config.max_batch_size:
        yield f"batch_size is {sample.rows}, and max_batch_size 0"
    if sample.count > MOST_RUNS:
        yield f"count is {sample.count}, and {MOST_RUNS} at most"
    if not 0 < len(sample.inputs) <= MOST_INPUTS:
        yield f"it has {len(sample.inputs)} inputs, of 1 to {MOST_INPUTS}"
    for name, one in sample.inputs.items():
        if why := _fault(one):
            yield f'its input "{name[:_MOST_SHOWN]}" {why}'
    elements = sum(math.prod(one.dims) for one in sample.inputs.values()) * sample.rows
    if elements > MOST_ELEMENTS:
        yield f"it has more than {MOST_ELEMENTS} elements"


def _fault(one: TritonFill) -> str:
    if not one.fill:
        return "is neither zero_data nor random_data: no file is read"
    if one.dtype not in DTYPES:
        return "has no data_type"
    if len(one.dims) >= MAX_RANK:
        return f"has {len(one.dims)} dimensions"
    if min(one.dims, default=1) < 1:
        return f"has the dims {list(one.dims)}, which leave a size open"
    return ""
