"""What becomes of a model's ``config.pbtxt``: which settings a new model gets, and whether its versions keep to it.

What has no counterpart here is said by its field's name, on the model's page and in REST.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from console.catalog import policy
from console.catalog.models import ModelConfig, ServedModel
from console.catalog.warmups import warm_ups
from console.repositories.models import Repository
from signalbox.program.words import counted
from signalbox.repositories.layouts import MOST_VERSIONS, TRITON_FOLDER
from signalbox.repositories.triton import CONFIG, TritonConfig, TritonTensor
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.signatures import DEFAULT, misfit

_PLATFORMS: Final = ("", "tensorflow_savedmodel")
_BACKENDS: Final = ("", "tensorflow")
_TAGS: Final = "serve"
_WARM_UPS: Final = "model_warmup"
_MOST_ROWS: Final = 65_536
_MOST_DELAY_MS: Final = 60_000.0
_MOST_QUEUE: Final = 1_000_000
_LEAST_DEADLINE_S: Final = 1.0
_MOST_DEADLINE_S: Final = 604_800.0
_MOST_SHOWN: Final = 100
_SERVED: Final[Mapping[str, str]] = {
    "name": "the model is called like its folder",
    "platform": "served",
    "backend": "served",
    "input": "compared with the signature",
    "output": "compared with the signature",
    "default_model_filename": "the folder that is served",
    "parameters.TF_SIGNATURE_DEF": "the signature that requests get",
    "parameters.TF_GRAPH_TAG": "the graph that is served",
    "dynamic_batching.default_queue_policy": "its limits are the model's",
}
"""What holds here, by field."""
_LEFT: Final[Mapping[str, str]] = {
    "dynamic_batching": "max_batch_size allows no row beside another",
    "dynamic_batching.preferred_batch_size": "what waits is joined, up to the largest batch",
    "dynamic_batching.preserve_ordering": "each caller gets its answer as soon as it is there",
    "dynamic_batching.priority_levels": "there are three: hi, mid and lo",
    "dynamic_batching.default_priority_level": "it is mid",
    "dynamic_batching.priority_queue_policy": "a queue's limits count for all priorities",
    "instance_group": "placement chooses GPUs, and the setting replicas how many",
    "optimization": "graphs run as TensorFlow runs them",
    "model_transaction_policy": "a request has one answer",
    "model_repository_agents": "none is run",
    "response_cache": "every request is run",
    "input.reshape": "requests have the signature's shape",
    "output.reshape": "answers have the signature's shape",
}
"""Why it is not taken over, by field; of others nothing more is said."""


class FoundConfig(NamedTuple):
    """file: fingerprint of the ``config.pbtxt`` as it was listed."""

    file: str
    config: TritonConfig


class Became(NamedTuple):
    """What a field came to. setting, asked: of a model, where the field is one. what: a few words."""

    field: str
    what: str
    is_taken: bool
    setting: str = ""
    asked: Any = None


def settings(config: TritonConfig) -> dict[str, Any]:
    """Settings of a new model, within their bounds."""
    return {one.setting: one.asked for one in became(config) if one.setting}


def became(config: TritonConfig) -> list[Became]:
    """What became of each field that the file sets."""
    taken = {field: (setting, asked) for field, setting, asked in _taken(config)}
    return [
        _warm_ups(config) if field == _WARM_UPS else _became(field, *taken.get(field, ("", None)))
        for field in config.fields
    ]


def _warm_ups(config: TritonConfig) -> Became:
    """What becomes of ``model_warmup``."""
    found = warm_ups(config)
    run = counted(len(found.taken), "sample is", "samples are") + " run after each load" if found.taken else ""
    left = f"not taken over: {'; '.join(found.left)}" if found.left else ""
    return Became(_WARM_UPS, "; ".join(filter(None, (run, left))), is_taken=not left)


def _became(field: str, setting: str, asked: Any) -> Became:
    if setting or field in _SERVED:
        return Became(field, _SERVED.get(field, ""), True, setting, asked)
    return Became(field, ": ".join(filter(None, ("not taken over", _LEFT.get(field)))), is_taken=False)


def _taken(config: TritonConfig) -> Iterator[tuple[str, str, Any]]:
    """(field, setting, value) of each setting that a field becomes."""
    queue = "dynamic_batching.default_queue_policy"
    if "version_policy" in config.fields:
        yield "version_policy", "policy", _policy(config)
    if config.max_batch_size:
        yield "max_batch_size", "max_batch_size", min(config.max_batch_size, _MOST_ROWS)
    if config.is_joining:
        yield "dynamic_batching", "rows_independent", True
        if config.delay_us:
            delay_ms = min(config.delay_us / 1000, _MOST_DELAY_MS)
            yield "dynamic_batching.max_queue_delay_microseconds", "max_batch_delay_ms", delay_ms
    if config.queue:
        yield f"{queue}.max_queue_size", "max_queue", min(config.queue, _MOST_QUEUE)
    if config.timeout_us:
        deadline_s = min(max(config.timeout_us / 1e6, _LEAST_DEADLINE_S), _MOST_DEADLINE_S)
        yield f"{queue}.default_timeout_microseconds", "deadline_s", deadline_s


def _policy(config: TritonConfig) -> dict[str, Any]:
    """Of versions that are named no more are kept than a model may have, the highest."""
    if config.specific:
        return policy.specific(sorted({max(number, 0) for number in config.specific})[-MOST_VERSIONS:])
    return policy.latest(config.latest) if config.latest else policy.everything()


def refusal(config: TritonConfig, signatures: Mapping[str, Signature]) -> str:
    """Why no Triton client would ever get from the version what the file promises; empty where one may."""
    if config.platform not in _PLATFORMS or config.backend not in _BACKENDS:
        named = (config.platform or config.backend)[:_MOST_SHOWN]
        return f'It is of the platform or backend "{named}"; tensorflow_savedmodel is served.'
    for field, why in (
        ("ensemble_scheduling", "an ensemble has no SavedModel of its own"),
        ("sequence_batching", "models keep no state between the requests of a sequence"),
    ):
        if field in config.fields:
            return f"{field}: {why}."
    if config.folder not in ("", TRITON_FOLDER):
        return f'default_model_filename is "{config.folder[:_MOST_SHOWN]}"; the folder {TRITON_FOLDER} is served.'
    if config.tags not in ("", _TAGS):
        return f'TF_GRAPH_TAG is "{config.tags[:_MOST_SHOWN]}"; the graph tagged "{_TAGS}" is served.'
    if config.signature not in ("", DEFAULT):
        named = config.signature[:_MOST_SHOWN]
        return f'TF_SIGNATURE_DEF is "{named}"; requests get "{DEFAULT}": export that signature under this name.'
    return next((one.text for one in _compared(config, signatures) if one.is_fatal), "")


def differences(config: TritonConfig, signatures: Mapping[str, Signature]) -> list[str]:
    """How a version's signature is unlike the inputs and outputs of the file, with both sides; and its warm-ups."""
    of_warm_ups = ((one.name, misfit(one, signatures)) for one in warm_ups(config).taken)
    return [
        *(one.text for one in _compared(config, signatures)),
        *(f'The warm-up "{name}" is not run: {why}.' for name, why in of_warm_ups if why),
    ]


class _Difference(NamedTuple):
    """is_fatal: whoever sends and expects what the file says gets an error, or another tensor."""

    text: str
    is_fatal: bool


def _compared(config: TritonConfig, signatures: Mapping[str, Signature]) -> Iterator[_Difference]:
    signature = signatures.get(DEFAULT)
    if signature is None:
        if config.inputs or config.outputs:
            yield _Difference(f'The version has no signature "{DEFAULT}", which requests get.', is_fatal=True)
        return
    yield from _sides("input", config, config.inputs, signature.inputs)
    for name in _left(config.inputs, signature.inputs):
        if name not in signature.defaults:
            yield _Difference(f"{_named('input', name)} is in the signature alone, and has to be sent.", is_fatal=True)
    yield from _sides("output", config, config.outputs, signature.outputs)
    for name in _left(config.outputs, signature.outputs):
        yield _Difference(f"{_named('output', name)} is in the signature alone, and is answered too.", is_fatal=False)


def _left(said: tuple[TritonTensor, ...], has: Mapping[str, TensorSpec]) -> list[str]:
    """Names that the file leaves out; none where it has none at all."""
    return sorted(has.keys() - {one.name for one in said}) if said else []


def _sides(
    side: str, config: TritonConfig, said: tuple[TritonTensor, ...], has: Mapping[str, TensorSpec]
) -> Iterator[_Difference]:
    for one in said:
        spec = has.get(one.name)
        if spec is None:
            names = ", ".join(sorted(has))[:_MOST_SHOWN]
            yield _Difference(f"{_named(side, one.name)} is not in the signature, which has {names}.", is_fatal=True)
            continue
        dtype = one.dtype or spec.dtype
        dims = ((-1, *one.dims) if config.max_batch_size else one.dims) if one.dims else spec.shape
        if dtype != spec.dtype or dims != spec.shape:
            yield _Difference(
                f"{_named(side, one.name)} is {_shown(dtype, dims)} in the file, and"
                f" {_shown(spec.dtype, spec.shape)} in the signature.",
                is_fatal=dtype != spec.dtype or not _fit(dims, spec.shape),
            )


def _fit(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> bool:
    """Whether a tensor may have both shapes."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _named(side: str, name: str) -> str:
    return f'The {side} "{name[:_MOST_SHOWN]}"'


def _shown(dtype: str, shape: tuple[int, ...] | None) -> str:
    return f"{dtype} {'of any shape' if shape is None else list(shape)}"


def note(model: ServedModel, found: FoundConfig | None) -> None:
    """Keep what a model's file says now; it changes no setting. None: there is no such file."""
    if found is None:
        ModelConfig.objects.filter(model=model).delete()
    else:
        values = {"file": found.file, "content": msgspec.to_builtins(found.config)}
        ModelConfig.objects.update_or_create(model=model, defaults=values)


class ConfigState(NamedTuple):
    """What the model's page says of its file. fields: what became of each. left: those that were not taken over, or
    are set to something else by now. differences: of the version that serves.

    error: why the file that lies there now is not read; the rest is of the one before.
    """

    fields: dict[str, str]
    left: list[str]
    differences: list[str]
    error: str


def state_of(model: ServedModel) -> ConfigState | None:
    """None where it has no such file."""
    if model.repository is None or (kept := getattr(model, "config", None)) is None:
        return None
    config = msgspec.convert(kept.content, TritonConfig)
    said = [_said(one, model) for one in became(config)]
    serving = next((one for one in model.versions.all() if one.number == model.serving_version), None)
    signatures = msgspec.convert(serving.signatures, dict[str, Signature]) if serving is not None else {}
    listing = getattr(model.repository, "listing", None)
    refused = listing.refused if listing is not None else {}
    return ConfigState(
        {one.field: one.what for one in said},
        [one.field for one in said if not one.is_taken],
        differences(config, signatures) if serving is not None else [],
        refused.get(f"{model.name}/{CONFIG}") or refused.get(CONFIG, ""),
    )


def left_of(repository: Repository, most: int) -> dict[str, list[str]]:
    """Of the first of its models that leave something of their files, by name: the fields."""
    found = ServedModel.objects.filter(repository=repository).exclude(config=None).order_by("name")
    states = ((model.name, state_of(model)) for model in found.select_related("config", "repository__listing")[:most])
    return {name: state.left for name, state in states if state is not None and state.left}


def _said(one: Became, model: ServedModel) -> Became:
    """With what the model has now, where the field is one of its settings."""
    if not one.setting:
        return one
    now = getattr(model, one.setting)
    here, there = (_value(one.setting, each) for each in (now, one.asked))
    what = f"{one.setting} is {here}" + ("" if now == one.asked else f", and {there} in the file")
    return one._replace(what=what, is_taken=now == one.asked)


def _value(setting: str, value: Any) -> Any:
    """The value as a person reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return policy.shown(value) if setting == "policy" else value
