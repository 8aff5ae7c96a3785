"""Warm-up requests that travel with a SavedModel, in TensorFlow Serving's own form.

``assets.extra/tf_serving_warmup_requests`` is a TFRecord file of ``PredictionLog`` messages; those
with a predict_log are run after a load, at most 1 000 of them. The few fields we need are declared
here, so that the TensorFlow Serving API package is not needed.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2
from tensorflow.python.framework import tensor_util

from signalbox.program.errors import ModelError
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor

FILE: Final = Path("assets.extra") / "tf_serving_warmup_requests"
LIMIT: Final = 1_000
_HEAD: Final = struct.Struct("<QI")
_PACKAGE: Final = "signalbox.warmup"
_FIELD: Final[Any] = descriptor_pb2.FieldDescriptorProto


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
    log = _message_class()
    found: list[Warmup] = []
    for record in _records(path.read_bytes()):
        request = log.FromString(record).predict_log.request
        if request.inputs:
            found.append(_warmup(request))
    return found[:LIMIT]


def _warmup(request: Any) -> Warmup:
    inputs = []
    for name, raw in request.inputs.items():
        array = tensor_util.MakeNdarray(tensor_pb2.TensorProto.FromString(raw))
        if array.dtype == object:
            data = b"".join(len(x).to_bytes(4, "little") + x for x in array.ravel())
            inputs.append(Tensor(name, "string", array.shape, data))
        else:
            inputs.append(Tensor(name, array.dtype.name, array.shape, array.tobytes()))
    signature = request.model_spec.signature_name or "serving_default"
    return Warmup(signature, tensors.encode(inputs), tuple(request.output_filter))


def _records(data: bytes) -> Iterator[bytes]:
    """Records of a TFRecord file: length, its checksum, data, its checksum (checksums not looked at)."""
    at = 0
    while at < len(data):
        try:
            size, _ = _HEAD.unpack_from(data, at)
        except struct.error as error:
            msg = f"{FILE} ends in the middle of a record."
            raise ModelError(msg) from error
        at += _HEAD.size
        yield data[at : at + size]
        at += size + 4


def _message_class() -> Any:
    """The fields of PredictionLog that are read; tensors stay bytes (equal on the wire to their message)."""
    file = descriptor_pb2.FileDescriptorProto(name="signalbox_warmup.proto", package=_PACKAGE, syntax="proto3")

    def message(name: str, *fields: tuple[int, str, str, bool]) -> None:
        declared = file.message_type.add(name=name)
        for number, field, type_, is_repeated in fields:
            made = declared.field.add(name=field, number=number, label=3 if is_repeated else 1)
            if type_ == "string":
                made.type = _FIELD.TYPE_STRING
            elif type_ == "bytes":
                made.type = _FIELD.TYPE_BYTES
            else:
                made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{type_}"
        if name == "PredictRequest":
            entry = declared.nested_type.add(name="InputsEntry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=1, type=_FIELD.TYPE_STRING)
            entry.field.add(name="value", number=2, label=1, type=_FIELD.TYPE_BYTES)

    message("ModelSpec", (1, "name", "string", False), (3, "signature_name", "string", False))
    message(
        "PredictRequest",
        (1, "model_spec", "ModelSpec", False),
        (2, "inputs", "PredictRequest.InputsEntry", True),
        (3, "output_filter", "string", True),
    )
    message("PredictLog", (1, "request", "PredictRequest", False))
    message("PredictionLog", (6, "predict_log", "PredictLog", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.PredictionLog"))
