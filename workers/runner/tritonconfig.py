"""Reads ``config.pbtxt``, the text with which Triton configures a model. The inspector is confined."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import Message

from signalbox.program.errors import InvalidRequest
from signalbox.repositories.triton import (
    CONFIG,
    MOST_CONFIG_BYTES,
    TritonConfig,
    TritonFill,
    TritonTensor,
    TritonWarmUp,
)
from workers.proto import triton_pb2
from workers.runner import textproto

_MOST_WARM_UPS: Final = 100
_WITH_PARTS: Final = ("dynamic_batching", "dynamic_batching.default_queue_policy")
DTYPE_OF: Final[dict[int, str]] = {
    triton_pb2.TYPE_BOOL: "bool",
    triton_pb2.TYPE_UINT8: "uint8",
    triton_pb2.TYPE_UINT16: "uint16",
    triton_pb2.TYPE_UINT32: "uint32",
    triton_pb2.TYPE_UINT64: "uint64",
    triton_pb2.TYPE_INT8: "int8",
    triton_pb2.TYPE_INT16: "int16",
    triton_pb2.TYPE_INT32: "int32",
    triton_pb2.TYPE_INT64: "int64",
    triton_pb2.TYPE_FP16: "float16",
    triton_pb2.TYPE_FP32: "float32",
    triton_pb2.TYPE_FP64: "float64",
    triton_pb2.TYPE_STRING: "string",
    triton_pb2.TYPE_BF16: "bfloat16",
}
"""Triton's name to the one on our wire."""


def inspect_config(directory: Path) -> TritonConfig | None:
    """What the file in ``directory`` says; None where there is none. Raises :class:`InvalidRequest`."""
    data = textproto.read_file(directory / CONFIG, MOST_CONFIG_BYTES)
    return read(data) if data is not None else None


def read(data: bytes) -> TritonConfig:
    """What the text says, which is that of :mod:`workers.proto`, with other fields left out.

    Raises :class:`InvalidRequest` with the line, for what is no such text.
    """
    config = triton_pb2.ModelConfig()
    textproto.parse(data, config)
    if config.max_batch_size < 0:
        raise InvalidRequest(f"max_batch_size is {config.max_batch_size}; Triton takes 0 and more.")
    batching, policy = config.dynamic_batching, config.version_policy
    return TritonConfig(
        fields=tuple(_fields(config)),
        name=config.name,
        platform=config.platform,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        inputs=tuple(_tensor(one) for one in config.input),
        outputs=tuple(_tensor(one) for one in config.output),
        delay_us=batching.max_queue_delay_microseconds,
        timeout_us=batching.default_queue_policy.default_timeout_microseconds,
        queue=batching.default_queue_policy.max_queue_size,
        latest=policy.latest.num_versions,
        specific=tuple(policy.specific.versions),
        signature=_parameter(config, "TF_SIGNATURE_DEF"),
        tags=_parameter(config, "TF_GRAPH_TAG"),
        folder=config.default_model_filename,
        warm_ups=tuple(_warm_up(one) for one in config.model_warmup[:_MOST_WARM_UPS]),
    )


def _fields(message: Message, above: str = "") -> Iterator[str]:
    for field, value in message.ListFields():
        name = f"{above}{field.name}"
        if name == "parameters":
            yield from (f"{name}.{key}" for key in sorted(value))
            continue
        yield name
        if name in _WITH_PARTS:
            yield from _fields(value, f"{name}.")
        elif name in ("input", "output") and any(tensor.HasField("reshape") for tensor in value):
            yield f"{name}.reshape"


def _tensor(one: triton_pb2.Tensor) -> TritonTensor:
    return TritonTensor(one.name, DTYPE_OF.get(one.data_type, ""), tuple(one.dims))


def _parameter(config: triton_pb2.ModelConfig, name: str) -> str:
    return config.parameters[name].string_value if name in config.parameters else ""


def _warm_up(one: triton_pb2.WarmUp) -> TritonWarmUp:
    inputs = {name: _fill(given) for name, given in one.inputs.items()}
    return TritonWarmUp(inputs, one.batch_size, one.count or 1, one.name)


def _fill(given: triton_pb2.WarmUpInput) -> TritonFill:
    fill = "zero" if given.zero_data else "random" if given.random_data else ""
    return TritonFill(DTYPE_OF.get(given.data_type, ""), tuple(given.dims), fill)
