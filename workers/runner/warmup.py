"""Warm-up requests: those that travel with a SavedModel, in TensorFlow Serving's own form, and those that are made up.

``assets.extra/tf_serving_warmup_requests`` is a TFRecord file of ``PredictionLog`` messages; those
with a predict_log are run after a load, at most 1 000 of them. The few fields we need are read by their
numbers, so that the TensorFlow Serving API package is not needed.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2
from tensorflow.python.framework import tensor_util

from signalbox.program.errors import ModelError
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Signature
from signalbox.wire.signatures import DEFAULT, misfit
from signalbox.wire.tensors import Tensor
from signalbox.wire.warmups import WarmUp, WarmUpInput
from workers.runner.arrays import STRING, Output
from workers.runner.madeup import random_values
from workers.runner.protowire import single, submessages, text

FILE: Final = Path("assets.extra") / "tf_serving_warmup_requests"
LIMIT: Final = 1_000
_HEAD: Final = struct.Struct("<QI")
_EMPTY_BYTES: Final = 4
"""Of a string without letters, as it travels."""
_SEED: Final = 47


class Warmup(msgspec.Struct, frozen=True):
    """One request: signature, the frame of its inputs, names of the outputs wanted."""

    signature: str
    frame: bytes
    outputs: tuple[str, ...]


def read(directory: Path) -> list[Warmup]:
    """The requests of a SavedModel directory; none where it brings none. Raises :class:`ModelError`."""
    path = directory / FILE
    if not path.exists():
        return []
    try:
        return list(islice(_requests(memoryview(path.read_bytes())), LIMIT))
    except (IndexError, TypeError, ValueError, struct.error, DecodeError) as error:
        msg = f"{FILE} is damaged."
        raise ModelError(msg) from error


def made(warm_ups: Sequence[WarmUp], signatures: Mapping[str, Signature]) -> Iterator[Warmup]:
    """Each as often as it is to be run; none that the version's signature does not take."""
    dice = np.random.default_rng(_SEED)
    for one in warm_ups:
        if not misfit(one, signatures):
            frame = tensors.encode([_filled(dice, name, given) for name, given in one.inputs.items()])
            yield from repeat(Warmup(DEFAULT, frame, ()), one.count)


def _filled(dice: np.random.Generator, name: str, given: WarmUpInput) -> Tensor:
    if given.is_random and given.dtype != STRING:
        return Output(given.dtype, random_values(dice, given.dtype, given.shape, is_tame=True)).tensor(name)
    size = math.prod(given.shape) * tensors.ITEM_SIZE.get(given.dtype, _EMPTY_BYTES)
    return Tensor(name, given.dtype, given.shape, bytes(size))


def _requests(data: memoryview) -> Iterator[Warmup]:
    for record in _records(data):
        request = single(single(record, 6), 1)  # PredictionLog.predict_log, PredictLog.request
        inputs = [_input(text(entry, 1), single(entry, 2)) for entry in submessages(request, 2)]
        if inputs:
            signature = text(single(request, 1), 3) or DEFAULT  # ModelSpec.signature_name
            outputs = tuple(bytes(name).decode() for name in submessages(request, 3))
            yield Warmup(signature, tensors.encode(inputs), outputs)


def _input(name: str, raw: memoryview) -> Tensor:
    array = tensor_util.MakeNdarray(tensor_pb2.TensorProto.FromString(bytes(raw)))
    dtype = STRING if array.dtype == object else array.dtype.name
    return Output.of(name, dtype, array).tensor(name)


def _records(data: memoryview) -> Iterator[memoryview]:
    """Records of a TFRecord file: length, its checksum, data, its checksum (checksums not looked at)."""
    at = 0
    while at < len(data):
        size, _ = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield data[at : at + size]
        at += size + 4
