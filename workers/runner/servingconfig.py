"""Reads ``models.config`` and the batching parameters of TensorFlow Serving."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import Message

from signalbox.program.errors import InvalidRequest
from signalbox.wire.servingconfig import (
    BATCHING,
    CONFIG,
    MOST_FILE_BYTES,
    MOST_MODELS,
    ServingBatching,
    ServingConfig,
    ServingModel,
)
from workers.proto import tfserving_pb2
from workers.runner import textproto

_KINDS = {tfserving_pb2.OTHER: "other"}


def inspect_serving(folder: Path) -> ServingConfig:
    """What the two files in ``folder`` say. Raises :class:`InvalidRequest` naming the file and the line."""
    given = _read(folder, CONFIG)
    if given is None:
        raise InvalidRequest(f"There is no {CONFIG}.")
    config, batching = tfserving_pb2.ModelServerConfig(), tfserving_pb2.BatchingParameters()
    _parse(CONFIG, given, config)
    models = config.model_config_list.config
    if config.HasField("custom_model_config"):
        raise InvalidRequest(f"{CONFIG}: custom_model_config is not read; name the models in a model_config_list.")
    if not models or len(models) > MOST_MODELS:
        raise InvalidRequest(f"{CONFIG}: has a model_config_list of 1 to {MOST_MODELS} models; this has {len(models)}.")
    given = _read(folder, BATCHING)
    if given is not None:
        _parse(BATCHING, given, batching)
    return ServingConfig(
        models=tuple(_model(one) for one in models), batching=_batching(batching) if given is not None else None
    )


def _read(folder: Path, name: str) -> bytes | None:
    try:
        return textproto.read_file(folder / name, MOST_FILE_BYTES)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name}: {error.public_message}") from error


def _parse(name: str, data: bytes, into: Message) -> None:
    try:
        textproto.parse(data, into)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name}: {error.public_message}") from error


def _model(one: tfserving_pb2.ModelConfig) -> ServingModel:
    policy = one.model_version_policy
    return ServingModel(
        name=one.name,
        base_path=one.base_path,
        kind=one.model_platform or _KINDS.get(one.model_type, "tensorflow"),
        fields=tuple(_fields(one)),
        latest=policy.latest.num_versions,
        specific=tuple(policy.specific.versions),
        is_all=policy.HasField("all"),
        labels=dict(one.version_labels),
    )


def _batching(given: tfserving_pb2.BatchingParameters) -> ServingBatching:
    return ServingBatching(
        fields=tuple(_fields(given)),
        max_batch_size=max(given.max_batch_size.value, 0),
        timeout_us=max(given.batch_timeout_micros.value, 0),
        enqueued_batches=max(given.max_enqueued_batches.value, 0),
    )


def _fields(message: Message) -> Iterator[str]:
    for field, _ in message.ListFields():
        yield field.name
