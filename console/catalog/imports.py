"""Makes models as a configuration of TensorFlow Serving says, and tells what became of each field.

Run again, it changes only what differs. A model that it has made, or found and set, is marked as imported.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from console.accounts.acts import Act
from console.accounts.rights import KEY, Actor
from console.audit.acts import Target, act, check
from console.catalog import folders, lookup, modelsettings, policy, registration, selection, targets
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.names import check_name, owned
from console.catalog.targets import MOST_LABELS
from console.repositories.models import Repository
from signalbox.program.errors import Conflict, InvalidRequest, SignalboxError
from signalbox.wire.servingconfig import ServingBatching, ServingConfig, ServingModel

_MOST_ROWS: Final = 65_536
_MOST_DELAY_MS: Final = 60_000.0
_MOST_QUEUE: Final = 1_000_000
_LEFT: Final[Mapping[str, str]] = {
    "logging_config": "requests are not logged; jobs and their events are kept",
    "logging_configs": "requests are not logged; jobs and their events are kept",
    "num_batch_threads": "one run at a time is on a device",
    "thread_pool_name": "there is no thread pool to share",
    "allowed_batch_sizes": "what waits is joined, up to the largest batch",
    "pad_variable_length_inputs": "rows of different shapes are not joined",
    "enable_large_batch_splitting": "a request that is larger than a batch runs alone",
    "max_execution_batch_size": "a request that is larger than a batch runs alone",
}
"""Why it is not taken over, by field."""


class Became(NamedTuple):
    """What a field came to, in words."""

    field: str
    what: str
    is_taken: bool


class Imported(NamedTuple):
    """What became of a model. why: it was refused as a whole; empty where it was not."""

    name: str
    became: list[Became]
    why: str = ""


def carry_out(actor: Actor, config: ServingConfig) -> list[Imported]:
    """Make each model as the configuration says; what is refused costs that model, or that field, alone.

    Raises :class:`Forbidden` for who may not register models, change their settings and choose their versions,
    :class:`InvalidRequest` for a name that stands there twice.
    """
    names = [one.name for one in config.models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidRequest(f"These names stand there twice: {', '.join(twice)}.")
    for right in (Act.MODELS_REGISTER, Act.MODELS_SETTINGS, Act.MODELS_ROLLOUT):
        check(actor, right, Target("model", names[0]), asked={"models": len(names)})
    wanted = settings_of(config.batching)
    return [_imported(actor, one, config.batching, wanted) for one in config.models]


def settings_of(batching: ServingBatching | None) -> dict[str, Any]:
    """Settings of each model, within their bounds."""
    found: dict[str, Any] = {}
    if batching is None:
        return found
    if batching.max_batch_size:
        found["max_batch_size"] = min(batching.max_batch_size, _MOST_ROWS)
    if batching.max_batch_size != 1:
        found["rows_independent"] = True
    if batching.timeout_us:
        found["max_batch_delay_ms"] = min(batching.timeout_us / 1000, _MOST_DELAY_MS)
    if batching.enqueued_batches:
        found["max_queue"] = min(batching.enqueued_batches * max(batching.max_batch_size, 1), _MOST_QUEUE)
    return found


def policy_of(one: ServingModel) -> dict[str, Any]:
    """Where nothing is said, the latest version, as in TensorFlow Serving.

    Raises :class:`InvalidRequest`, for more labels than a model may have too: each is an act.
    """
    if len(one.labels) > MOST_LABELS:
        raise InvalidRequest(f"version_labels: {one.name[:100]} has {len(one.labels)}; at most {MOST_LABELS} are read.")
    if one.is_all:
        return policy.everything()
    return policy.specific(one.specific) if one.specific else policy.latest(one.latest or 1)


def _imported(actor: Actor, one: ServingModel, batching: ServingBatching | None, wanted: Mapping[str, Any]) -> Imported:
    try:
        if one.kind != "tensorflow":
            raise InvalidRequest(f"model_platform: {one.kind[:100]} is not served, only tensorflow is.")
        chosen = policy_of(one)
        where = _registered(actor, one, chosen, wanted)
    except SignalboxError as error:
        return Imported(one.name, [], error.public_message)
    said = [Became("name", "the model's name", is_taken=True), Became("base_path", where, is_taken=True)]
    said += [
        Became(field, "served", is_taken=True) for field in ("model_type", "model_platform") if field in one.fields
    ]
    said += apply_versions(actor, one, chosen)
    said += [_left(field) for field in one.fields if field in _LEFT]
    said += _batched(actor, one.name, batching, wanted)
    _mark(actor, one)
    return Imported(one.name, said)


def _registered(actor: Actor, one: ServingModel, chosen: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Have the versions below the base path registered, as a person does; where they come from, in words.

    Raises :class:`InvalidRequest` or :class:`Conflict` naming what is in the way.
    """
    check_name(one.name)
    model = ServedModel.objects.select_related("repository").filter(name=one.name).first()
    if model is not None and model.repository is not None:
        if not _is_same(one.base_path, model.base_folder):
            raise Conflict(f"base_path: {owned(one.name, model.repository)} They lie in {model.base_folder}.")
        return f"the repository {model.repository} brings its versions"
    if brings := _bringing(one):
        raise Conflict(f"base_path: the repository {brings} has not brought {one.name} yet. Import again once it has.")
    if "://" in one.base_path:
        above = one.base_path.rstrip("/").rpartition("/")[0]
        raise InvalidRequest(
            f"base_path: it lies in an object store. Add a repository with the URL {above}, which brings the models"
            " below it by the names of their folders, and import again once it has brought them."
        )
    base, places = folders.versions_below(folders.allowed(Path(one.base_path)))
    known = set(ModelVersion.with_deleted.filter(model=model).values_list("number", flat=True)) if model else set()
    if model is None or places.keys() - known:
        first, changes = (chosen, wanted) if model is None else (None, None)
        registration.register(actor, one.name, str(base), policy=first, changes=changes)
    return f"{base} is registered; import again for versions that come later"


def _bringing(one: ServingModel) -> Repository | None:
    """The repository that lists the folder of this name, if there is one."""
    above, _, folder = one.base_path.rstrip("/").rpartition("/")
    if folder != one.name:
        return None
    return next((row for row in Repository.objects.filter(is_noticed=True) if _is_same(above, row.url)), None)


def folder(path: str) -> str:
    """A base path as it is compared."""
    return path.rstrip("/").removeprefix("file://")


def _is_same(one: str, other: str) -> bool:
    return folder(one) == folder(other)


def apply_versions(actor: Actor, one: ServingModel, chosen: Mapping[str, Any]) -> Iterator[Became]:
    """Give a model its policy and its labels; those that the import before set and this one omits are taken away."""
    model = lookup.find(one.name)
    if model.policy != chosen:
        yield _tried(
            "model_version_policy", partial(selection.set_policy, actor, one.name, chosen), policy.shown(chosen)
        )
    else:
        yield Became("model_version_policy", policy.shown(chosen), is_taken=True)
    now = {label.name: label.version.number for label in model.labels.select_related("version")}
    for label, number in sorted(one.labels.items()):
        field, words = f"version_labels.{label[:50]}", f"leads to version {number}"
        if now.get(label) == number:
            yield Became(field, words, is_taken=True)
        else:
            yield _tried(field, partial(targets.set_label, actor, one.name, label, number), words)
    for label in sorted((model.imported.get("labels", {}).keys() & now.keys()) - one.labels.keys()):
        field = f"version_labels.{label}"
        yield _tried(field, partial(targets.set_label, actor, one.name, label, None), "is taken away")


def reload(actor: Actor, one: ServingModel) -> list[str]:
    """Give an imported model the versions and labels of a new configuration; why parts of it are not taken over.

    The base path is kept. Raises :class:`InvalidRequest` for what is no policy.
    """
    said = list(apply_versions(actor, one, policy_of(one)))
    _mark(actor, msgspec.structs.replace(one, base_path=lookup.find(one.name).imported["base_path"]))
    return [f"{each.field}: {each.what}" for each in said if not each.is_taken]


def _batched(actor: Actor, name: str, batching: ServingBatching | None, wanted: Mapping[str, Any]) -> Iterator[Became]:
    if batching is None:
        return
    model = lookup.find(name)
    for setting, field in (
        ("rows_independent", "batching"),
        ("max_batch_size", "max_batch_size"),
        ("max_batch_delay_ms", "batch_timeout_micros"),
        ("max_queue", "max_enqueued_batches"),
    ):
        if setting in wanted:
            value, words = wanted[setting], f"{setting} is {wanted[setting]}"
            if getattr(model, setting) == value:
                yield Became(field, words, is_taken=True)
            else:
                yield _tried(field, partial(modelsettings.change_settings, actor, name, {setting: value}), words)
    yield from (_left(field) for field in batching.fields if field in _LEFT)


def _tried(field: str, do: Callable[[], object], words: str) -> Became:
    try:
        do()
    except SignalboxError as error:
        return Became(field, error.public_message, is_taken=False)
    return Became(field, words, is_taken=True)


def _left(field: str) -> Became:
    return Became(field, f"not taken over: {_LEFT[field]}", is_taken=False)


def _mark(actor: Actor, one: ServingModel) -> None:
    """Note what the import has set, and let a model that a configuration had omitted take requests again.

    A label that could not be taken away stays the import's: the next one takes it away.
    """
    model = lookup.find(one.name)
    now = {label.name: label.version.number for label in model.labels.select_related("version")}
    before = model.imported.get("labels", {})
    labels = {name: number for name, number in now.items() if name in before or one.labels.get(name) == number}
    said = {"base_path": one.base_path, "labels": labels}
    if model.imported != said:
        note(actor, one.name, said)
    if not model.is_enabled and model.disabled_by.startswith(KEY):
        modelsettings.set_enabled(actor, one.name, is_enabled=True, reason="A configuration names it again.")


def note(actor: Actor, name: str, said: Mapping[str, Any]) -> None:
    """Keep what the last configuration said of a model."""
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked={"imported": dict(said)}) as change:
        model = lookup.locked(name)
        change.before, change.after = {"imported": model.imported}, {"imported": dict(said)}
        model.imported = dict(said)
        model.save(update_fields=["imported"])
