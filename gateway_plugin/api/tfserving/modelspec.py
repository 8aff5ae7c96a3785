"""Which model a gRPC call is for: TensorFlow Serving's ModelSpec, and small messages that hold one.

Texts that name what is wrong are TensorFlow Serving's own (its ``server_core.cc``), followed by ours.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from gateway_plugin.admission.keyring import require_model
from gateway_plugin.api.calls import GrpcCall
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.proto.serving_pb2 import ModelSpec
from gateway_plugin.tables.catalog import Catalog
from signalbox.program.errors import InvalidRequest, TooLarge
from signalbox.wire.keydocs import ApiKey

_MOST_BYTES: Final = 4_096
"""Of a message without tensors and examples: protobuf's classes take many times a message's bytes."""
M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes, most_bytes: int = _MOST_BYTES) -> M:
    """A small message. Raises :class:`InvalidRequest` for what is none, and :class:`TooLarge`."""
    name = kind.DESCRIPTOR.name
    if len(data) > most_bytes:
        raise TooLarge(
            f"The {name} has {len(data)} bytes; at most {most_bytes} are taken.", bound="bytes", limit_bytes=most_bytes
        )
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"The {name} is malformed: it is no protobuf message of this kind.") from error


def read(parts: Sequence[memoryview]) -> ModelSpec:
    """The spec in a request's field, which may come in parts. Raises as :func:`parse`, and where there is none."""
    if not parts:
        raise missing()
    return parse(ModelSpec, b"".join(parts))


def missing() -> InvalidRequest:
    """The error for a request that says nothing of a model."""
    return InvalidRequest("Missing ModelSpec. Give model_spec, with the model's name.")


def version(spec: ModelSpec) -> int | None:
    """The version that is asked for by its number."""
    return spec.version.value if spec.HasField("version") else None


def label(spec: ModelSpec) -> str | None:
    """The label that is asked for."""
    return spec.version_label if spec.HasField("version_label") else None


def ready(spec: ModelSpec, catalog: Catalog, key: ApiKey) -> PreparedVersion:
    """The version a call asks about.

    Raises :class:`InvalidRequest` for a spec without a name, and as :func:`require_model` and :meth:`Catalog.ready`.
    """
    _require_named(spec, key)
    return catalog.ready(spec.name, version(spec), label(spec), key)


def chosen(spec: ModelSpec, catalog: Catalog, call: GrpcCall) -> PreparedVersion:
    """The version a call runs on. Raises as :func:`ready`."""
    _require_named(spec, call.key)
    return catalog.chosen(call.key, call.headers, spec.name, version(spec), label(spec))


def _require_named(spec: ModelSpec, key: ApiKey) -> None:
    if not spec.name:
        raise InvalidRequest("ModelSpec has no name specified. Give the model's name in model_spec.name.")
    require_model(key, spec.name)


def effective(ready: PreparedVersion, signature: str = "") -> ModelSpec:
    """What an answer says of the version it is of."""
    made = ModelSpec(name=ready.model.name, signature_name=signature)
    made.version.value = ready.version.version
    return made
