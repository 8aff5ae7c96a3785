"""Acts on models. Slow preparations (inspection, unpacking) happen before the transaction."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from console import bounds
from console.accounts.acts import Act
from console.accounts.rights import KEY, Actor, system_actor
from console.audit.acts import AuditedValues, Target, act, check, preparing
from console.bounds import MOST_NUMBER
from console.catalog import folders, inspection, triton, versions
from console.catalog.models import REPOSITORY, ModelVersion, ServedModel, VersionLabel
from console.catalog.targets import require_label, require_unsplit, servable
from console.catalog.tombstones import begun_anew, missing, require_free_name, was_deleted
from console.catalog.versions import Candidate
from console.catalog.warmups import warm_ups
from console.feed.running import running
from console.outbox import services as outbox
from console.outbox.services import model_key, post_document, waiting
from console.repositories.models import Repository
from signalbox.program import metrics
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, NotFound
from signalbox.wire import messages, modeldocs, workerdocs
from signalbox.wire.assets import JOB_MAX_BYTES
from signalbox.wire.names import MODEL_NAME, RESERVED_MODEL_NAMES, Bucket, untoken

AUTOSCALE: Final = (
    "autoscale",
    "autoscale_min",
    "autoscale_max",
    "queue_backlog",
    "target_wait_s",
    "scale_tolerance",
    "scale_up_window_s",
    "scale_down_window_s",
    "scale_to_zero_grace_s",
    "scale_up_activation",
)
"""Those of :data:`SETTINGS` that say how replicas follow the load."""
SETTINGS = (
    "description",
    "replicas",
    *AUTOSCALE,
    "rows_independent",
    "max_batch_size",
    "max_batch_delay_ms",
    "max_delivery",
    "timeout_s",
    "deadline_s",
    "sync_wait_s",
    "max_queue",
    "max_payload_bytes",
)
"""Fields :func:`change_settings` takes."""
MOST_LABELS: Final = 100
"""Of a model: each is in its document, which every gateway and worker reads."""
_GROUP: Final = 200
"""Models whose documents are in memory at once."""
MOST_DOCUMENT: Final = JOB_MAX_BYTES - 4096
"""Bytes of a model's document: what NATS takes, less room for headers and for a longer description."""
HIGHEST: Final = "the highest"
"""What the audit says of a default that is not chosen."""
_MOST_WORDS: Final = 600
"""Of what a worker has found."""
REFUSED: Final = metrics.counter(
    "console_models_refused", "Models that were not taken, by what was wrong with them.", "reason"
)


def owned(name: str, repository: Repository | None) -> str:
    """Who alone adds versions to the model, as a sentence."""
    owner = f"repository {repository} brings" if repository is not None else "people add"
    return f"{name} is the name of a model whose versions {owner}."


def find(name: str) -> ServedModel:
    """The model called ``name``. Raises :class:`NotFound`."""
    found = ServedModel.objects.filter(name=name).first()
    if found is None:
        raise NotFound(missing(name))
    return found


def find_version(name: str, text: str) -> ModelVersion:
    """One version of a model. text: its number. Raises :class:`NotFound`, :class:`InvalidRequest` for no number."""
    return _version(find(name), bounds.number(text, "version"))


def register(
    actor: Actor,
    name: str,
    path: str,
    *,
    description: str = "",
    changes: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    is_default: bool | None = None,
) -> ServedModel:
    """Register the versions found below ``path`` under ``name``, a new model or one that is there.

    path: a base folder (``<version>/saved_model.pb`` below it), or one version's folder, whose name is
    its number (1 if it is no number). Versions already registered stay as they are; where there are no others, those
    that never loaded are registered again with the files they have now.
    changes, policy: of a new model. is_default: see :func:`choose_default`; of several new versions the highest is
    meant. A version with operations that need approval does not serve before :func:`approve`.
    Raises :class:`InvalidRequest` naming what is wrong with the path.
    """
    target = Target("model", name)
    asked = {"path": path, **choice(is_default), **(changes or {})}
    check_rights(actor, target, is_default, asked)
    with preparing(actor, Act.MODELS_REGISTER, target, asked=asked):
        base, places, findings = _inspected(name, path)
    with act(actor, Act.MODELS_REGISTER, target, asked=asked) as change:
        kept = settings.CONSOLE.kept_path
        model, given = found_or_made(name, kept(base), description, changes or {}, policy=policy)
        new = {number: Candidate(kept(places[number]), found) for number, found in findings.items()}
        change.after = {"path": str(base), **given}
        _add_all(model, new, "path", actor, change, is_default=is_default)
    return model


def register_found(
    actor: Actor,
    repository: Repository,
    name: str,
    base: str,
    new: Mapping[int, Candidate],
    config: triton.FoundConfig | None = None,
) -> ServedModel:
    """Register versions that a repository has, under ``name``: a new model, with the repository's defaults, or its own.

    base: as :class:`ServedModel` keeps the model's folder. config: a new model has settings of it, before the
    repository's defaults. A version that never loaded, and whose bytes no host has, is
    replaced. Raises :class:`InvalidRequest` for a name that no model may have, :class:`Conflict` for one that a person
    or another repository has, or for a version that is final.
    """
    asked = {"repository": repository.name, "path": settings.CONSOLE.real_path(base)}
    with act(actor, Act.MODELS_REGISTER, Target("model", name), asked=asked) as change:
        check_name(name)
        if not Repository.objects.select_for_update().filter(pk=repository.pk).exists():
            raise Conflict(f"The repository {repository} was deleted.")
        said = triton.settings(config.config) if config is not None else {}
        policy = said.pop("policy", None)
        model, given = found_or_made(name, base, "", {**repository.defaults, **said}, repository, policy)
        if config is not None:
            triton.note(model, config)
        change.after = {**asked, **given}
        _add_all(model, new, REPOSITORY, actor, change)
    return model


def note_config(actor: Actor, model: ServedModel, config: triton.FoundConfig | None) -> None:
    """Keep what a model's ``config.pbtxt`` says now; None: there is none. Its warm-ups are published, no setting is."""
    said = warm_ups(config.config).taken if config is not None else ()
    if (before := model.warm_ups) == said:
        triton.note(model, config)
        return
    with act(actor, Act.MODELS_REGISTER, Target("model", model.name), reason="Its config.pbtxt has changed.") as change:
        triton.note(model, config)
        change.before = {"warm_ups": [one.name for one in before]}
        change.after = {"warm_ups": [one.name for one in said]}
        publish(locked(model.name), change)


def with_joining(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a form gives, as acts take it: ``rows_independent``, where ticked, among ``changes``."""
    rest = {name: value for name, value in given.items() if name != "rows_independent"}
    return {**rest, "changes": {"rows_independent": True} if given["rows_independent"] else {}}


def approve(actor: Actor, name: str, number: int, *, reason: str = "") -> ServedModel:
    """Approve a version's operations so that it serves. The approver is not the operator who added the version, nor
    the one who added the repository that brought it, or changed that last.

    The same for a serving version that needs approval by today's list (:mod:`console.catalog.judging`).
    Raises :class:`Forbidden` for the operator who added it and for programs, :class:`Conflict` without need of
    approval.
    """
    with act(actor, Act.MODELS_APPROVE, Target("model", name), asked={"version": number}, reason=reason) as change:
        model = locked(name)
        version = _version(model, number)
        if version.is_approved and not version.raised_ops:
            raise Conflict(f"Version {number} of {name} does not wait for approval.")
        _require_another_person(actor, model, version)
        before = model.serving_version
        version.approved_by = actor.name
        version.listed_ops, version.raised_ops = {**version.listed_ops, **version.raised_ops}, {}
        version.save(update_fields=["approved_by", "listed_ops", "raised_ops"])
        change.before = {"default": before}
        change.after = {
            "version": number,
            "digest": version.digest,
            "approved_operations": version.listed_ops,
            "default": model.serving_version,
        }
        publish_fitting(model, change)
    return model


def change_settings(actor: Actor, name: str, changes: Mapping[str, Any], *, reason: str = "") -> ServedModel:
    """Change replicas, batching, limits or the description.

    Raises :class:`InvalidRequest` naming each field, and :class:`Conflict` where ``rows_independent`` is asked for and
    a worker has found that the rows of the version that serves are not.
    """
    with act(actor, Act.MODELS_SETTINGS, Target("model", name), asked=changes, reason=reason) as change:
        model = locked(name)
        change.before = {field: getattr(model, field) for field in changes if field in SETTINGS}
        if changes.get("rows_independent") and not model.rows_independent:
            _ask_for_joining(model)
        _assign(model, changes)
        change.after = {field: getattr(model, field) for field in changes}
        publish(model, change)
    return model


def set_enabled(actor: Actor, name: str, *, is_enabled: bool, reason: str = "") -> ServedModel:
    """Let the model take requests, or refuse them with the reason.

    Raises :class:`Conflict` for a key's owner who would enable what an operator has disabled.
    """
    asked = {"is_enabled": is_enabled}
    with act(actor, Act.MODELS_SETTINGS, Target("model", name), asked=asked, reason=reason) as change:
        model = locked(name)
        change.before = {"is_enabled": model.is_enabled}
        is_operators = not model.is_enabled and not model.disabled_by.startswith(KEY)
        if is_operators and actor.name.startswith(KEY):
            if is_enabled:
                raise Conflict(f"{name} was disabled by an operator, who alone enables it again.")
            return model
        model.is_enabled, model.disabled_by = is_enabled, "" if is_enabled else actor.name
        publish(model, change)
    return model


def set_default(actor: Actor, name: str, number: int | None, *, reason: str = "") -> ServedModel:
    """Choose the version that requests without one get; None: always the highest."""
    asked = {"default_version": number or HIGHEST}
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked=asked, reason=reason) as change:
        model = locked(name)
        require_unsplit(model, "")
        change.before = {"default_version": model.default_version or HIGHEST}
        if number is not None:
            servable(model, number)
        model.default_version = number
        publish_fitting(model, change)
    return model


def set_label(actor: Actor, name: str, label: str, number: int | None, *, reason: str = "") -> ServedModel:
    """Point a label at a version; None takes the label away."""
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked={label: number}, reason=reason) as change:
        model = locked(name)
        require_label(label)
        require_unsplit(model, label)
        existing = VersionLabel.objects.filter(model=model, name=label).select_related("version").first()
        change.before = {label: existing.version.number if existing else None}
        if number is None:
            if existing is None:
                raise NotFound(f"{name} has no label {label!r}.")
            existing.delete()
        else:
            version = servable(model, number)
            _require_available(name, number)
            if existing is None and model.labels.count() >= MOST_LABELS:
                raise Conflict(f"{name} has {MOST_LABELS} labels; no model has more. Take one away first.")
            VersionLabel.objects.update_or_create(model=model, name=label, defaults={"version": version})
        publish_fitting(model, change)
    return model


def note_joining(worker: str, name: str, number: int, found: workerdocs.Joining) -> bool:
    """Note what a worker has found of a version's joined requests, and publish it. Idempotent.

    Where requests without a label get the version, a difference refuses the setting: it is turned off again. False
    where the version is unknown, has other files, or this is known of it.
    """
    with transaction.atomic():
        model = ServedModel.objects.select_for_update().filter(name=name).first()
        version = model.versions.filter(number=number, digest=found.digest).first() if model is not None else None
        if model is None or version is None or version.tried is not None:
            return False
        version.joining = {
            "joined": list(found.joined),
            "differs": found.differs[:_MOST_WORDS],
            "untried": found.untried[:_MOST_WORDS],
            "digest": found.digest,
            "worker": worker,
            "at": timezone.now().isoformat(),
        }
        version.save(update_fields=["joining"])
        if not (model.rows_independent and _difference(model)):
            publish(model, AuditedValues())
            return True
        reason = f"Joined, requests of version {model.serving_version} get other answers."
        with act(system_actor("trial"), Act.MODELS_SETTINGS, Target("model", name), reason=reason) as change:
            publish(model, change)
    return True


def _difference(model: ServedModel) -> str:
    """How answers of joined requests differ at the version that requests without a label get; empty where none do."""
    number = model.serving_version
    tried = _version(model, number).tried if number is not None else None
    return tried["differs"] if tried is not None else ""


def _ask_for_joining(model: ServedModel) -> None:
    """Have versions tried again that could not be tried. Raises :class:`Conflict` where the one that serves differs."""
    if differs := _difference(model):
        raise Conflict(
            f"rows_independent: a worker has tried version {model.serving_version}. Joined, requests get other "
            f"answers. {differs} Register a version whose rows are independent."
        )
    for version in model.versions.all():
        tried = version.tried
        if tried is not None and tried["untried"]:
            version.joining = None
            version.save(update_fields=["joining"])


def _require_available(name: str, number: int) -> None:
    """Raise :class:`Conflict` for a version whose load failed where it was to serve: no label leads to it.

    Any other is AVAILABLE, or becomes so before requests by the label get it.
    """
    feed = running.feed
    pending = feed.view.rollouts.pending(name) if feed is not None else ()
    if any(one.new == number and one.has_failed for one in list(pending)):
        raise Conflict(
            f"Request to assign label to version {number} of model {name}, which is not currently available for "
            "inference: its load failed. The model's page says why; publish the version again, or choose another."
        )


def check_rights(actor: Actor, target: Target, is_default: bool | None, asked: Mapping[str, Any]) -> None:
    """Return for who may add versions and, where it is asked for, choose the default. Raises :class:`Forbidden`."""
    check(actor, Act.MODELS_REGISTER, target, asked=asked)
    if is_default is not None:
        check(actor, Act.MODELS_ROLLOUT, target, asked=asked)


def choice(is_default: bool | None) -> dict[str, bool]:
    """What was said of the default, for the audit: nothing where nothing was."""
    return {} if is_default is None else {"is_default": is_default}


def _require_another_person(actor: Actor, model: ServedModel, version: ModelVersion) -> None:
    """Raise :class:`Forbidden` for programs, and for who added the version, or the repository that brought it."""
    if actor.user is None or actor.user.is_service or actor.name == version.added_by:
        raise Forbidden("A version's operations are approved by a person who did not add the version.")
    if actor.name in version.interested:
        raise Forbidden(
            f"A version's operations are approved by a person who neither added the repository {model.repository} nor"
            " changed it last."
        )


def found_or_made(
    name: str,
    base: str,
    description: str,
    changes: Mapping[str, Any],
    repository: Repository | None = None,
    policy: Mapping[str, Any] | None = None,
) -> tuple[ServedModel, dict[str, Any]]:
    """The model, and for the audit what was given for a new one. changes: of a repository, for a new one alone.
    policy: of a new one; None = all versions.

    Raises :class:`Conflict` for a person's changes to an old one, and for one whose versions come from elsewhere.
    """
    defaults: dict[str, Any] = {"base_path": base, "description": description, "repository": repository}
    if policy is not None:
        defaults["policy"] = policy
    anew = begun_anew(name, repository, defaults)
    try:
        # Locked, so that it is not deleted meanwhile.
        found = ServedModel.objects.select_for_update().get_or_create(name=name, defaults=defaults)
    except IntegrityError as error:
        raise Conflict(missing(name)) from error
    model, is_new = found[0], found[1] or anew is not None
    if model.repository != repository:
        raise Conflict(f"{owned(name, model.repository)} Choose another name.")
    if changes and not is_new and repository is None:
        raise Conflict(f"settings: {name} exists and has its own; change them apart.")
    changes = changes if is_new else {}
    _assign(model, changes)
    said = {"description": description, "policy": policy}
    return model, ({field: value for field, value in said.items() if value} if is_new else {}) | dict(changes)


def choose_default(model: ServedModel, before: int | None, new: int, is_default: bool | None) -> None:
    """Which version requests without one get, now that ``new`` is there and ``before`` served until now.

    One that waits for approval changes nothing yet, nor by its approval where the one before was to stay.
    is_default: True: the new one. False: still the one before, if there was one. None: as the model is set, which is
    the highest unless an operator chose one.
    """
    if is_default is None:
        return
    is_waiting = not _version(model, new).may_serve
    if is_waiting and is_default:
        return
    wanted = new if is_default else before
    if wanted is not None and (is_waiting or model.serving_version != wanted):
        if wanted != model.default_version:
            require_unsplit(model, "")
        model.default_version = wanted


def unpublished() -> dict[str, str]:
    """Why the newest decision on each model is not published, by the model's name."""
    return {untoken(key): why for key, why in waiting(Bucket.MODELS).items()}


def why_unpublished(name: str) -> str:
    """Why the newest decision on a model is not published, empty once it is; waits a moment for it."""
    return outbox.why_unpublished(Bucket.MODELS, model_key(name))


def checked_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a new model can have. Raises :class:`InvalidRequest` naming each field that it cannot."""
    model = ServedModel(name="new", base_path="/")
    _assign(model, changes)
    return {field: getattr(model, field) for field in changes}


def publish_all(repository: Repository) -> int:
    """Publish every model of a repository, whose terms have changed; returns how many there are."""
    models = ServedModel.objects.filter(repository=repository)
    models.update(updated_at=timezone.now())
    found = models.select_related("repository", "config").prefetch_related("versions", "splits", "labels__version")
    pks = list(models.values_list("pk", flat=True))
    for start in range(0, len(pks), _GROUP):  # one group is in memory: there may be thousands of models
        group = found.filter(pk__in=pks[start : start + _GROUP])
        outbox.post_documents(Bucket.MODELS, [(model_key(model.name), model.document(), model.name) for model in group])
    return len(pks)


def _assign(model: ServedModel, changes: Mapping[str, Any]) -> None:
    unknown = sorted(set(changes) - set(SETTINGS))
    if unknown:
        raise InvalidRequest(f"Unknown settings: {', '.join(unknown)}. Known: {', '.join(SETTINGS)}.")
    for field, value in changes.items():
        if isinstance(value, float) and not math.isfinite(value):  # no bound refuses a NaN
            raise InvalidRequest(f"{field}: is a finite number.")
        setattr(model, field, value)
    try:
        model.clean_fields(exclude=["repository"])  # which costs a query, and is a row that was read
    except ValidationError as error:
        faults = "; ".join(f"{field}: {' '.join(said)}" for field, said in error.message_dict.items())
        raise InvalidRequest(faults) from error
    for least in ("autoscale_min", "scale_up_activation"):
        if changes.keys() & {least, "autoscale_max"} and getattr(model, least) > model.autoscale_max:
            raise InvalidRequest(f"{least}: is at most autoscale_max, which is {model.autoscale_max}.")


def publish(model: ServedModel, change: AuditedValues) -> modeldocs.Model:
    """Save and publish; what is published. Within the caller's transaction.

    Where the version that serves now is known to differ, no setting joins its requests.
    """
    if model.rows_independent and (differs := _difference(model)):
        model.rows_independent = False
        change.before = {**change.before, "rows_independent": True}
        change.after = {
            **change.after,
            "rows_independent": False,
            "differs": f"Version {model.serving_version}: {differs}",
        }
    model.updated_at = timezone.now()
    model.note_published(model.updated_at.timestamp())
    model.save()
    # Read back: prefetched or cached relations must not be what is published.
    fresh = ServedModel.objects.select_related("repository", "config").prefetch_related(
        "versions", "splits", "labels__version"
    )
    document = fresh.get(pk=model.pk).document()
    post_document(Bucket.MODELS, model_key(model.name), document, name=model.name)
    return document


def publish_fitting(model: ServedModel, change: AuditedValues) -> modeldocs.Model:
    """Publish as :func:`publish` does, what may be more than before. Raises :class:`Conflict` where NATS would not take
    the document.
    """
    document = publish(model, change)
    if (size := len(messages.encode(document))) > MOST_DOCUMENT:
        raise Conflict(
            f"With these versions the document of {model.name} has {size} bytes, and NATS takes {MOST_DOCUMENT}: its"
            " signatures are too many or too long. Fewer versions of it have room."
        )
    return document


def _add_all(
    model: ServedModel,
    new: Mapping[int, Candidate],
    source: str,
    actor: Actor,
    change: AuditedValues,
    *,
    is_default: bool | None = None,
) -> None:
    """Add the versions, publish, and complete what the audit says. Raises :class:`Conflict`, too, where the model's
    document has no room for them.
    """
    before = model.serving_version
    change.before = {"default": before}
    change.after = {**change.after, "versions": sorted(new)}
    for number, candidate in new.items():
        _, replaced = add(model, number, candidate, source, actor)
        if replaced:
            change.before[f"digest of {number}"] = replaced
            change.after[f"digest of {number}"] = candidate.found.digest
    choose_default(model, before, max(new), is_default)
    if listed := {op: why for candidate in new.values() for op, why in candidate.found.listed.items()}:
        change.after["awaits_approval"] = listed
    change.after["default"] = publish_fitting(model, change).default_version


def add(model: ServedModel, number: int, new: Candidate, source: str, actor: Actor) -> tuple[ModelVersion, str]:
    """Add a version as :func:`versions.add` does, and count what waits for approval."""
    if new.found.listed:
        REFUSED.labels("operations that wait for approval").inc()
    return versions.add(model, number, new, source, actor)


def _inspected(name: str, path: str) -> tuple[Path, dict[int, Path], dict[int, inspection.Inspection]]:
    """The base folder, all versions below ``path``, and what was found in those to register: the new ones, if there
    are any, else those that never loaded and have other files now.
    """
    check_name(name)
    base, places = folders.versions_below(folders.allowed(Path(path)))
    if max(places) > MOST_NUMBER:
        raise InvalidRequest(f"A version is a number up to {MOST_NUMBER}.")
    known = {version.number: version for version in ModelVersion.with_deleted.filter(model__name=name)}
    deleted = [number for number in sorted(places) if number in known and known[number].deleted_at is not None]
    if len(deleted) == len(places):
        raise Conflict(
            f"{was_deleted(known[deleted[-1]])} Its number is not used again: put the files under another one, or"
            " undo the deletion."
        )
    for number in deleted:  # the others are registered
        del places[number]
    candidates = [number for number in sorted(places) if number not in known]
    candidates = candidates or [number for number in sorted(places) if known[number].first_ready_at is None]
    for number in candidates:
        folders.allowed(places[number])  # it may be a link
    findings = {number: _found(number, places[number]) for number in candidates}
    for number in known.keys() & findings.keys():
        if findings[number].digest == known[number].digest:
            del findings[number]
    if not findings:
        for number, place in places.items():
            if (folder := known[number].folder) != str(place):
                raise Conflict(f"Version {number} is registered already, from {folder}. It keeps that folder.")
        raise Conflict(
            f"Every version below {path} is registered already; one that workers have loaded keeps its files."
        )
    return base, places, findings


def _found(number: int, folder: Path) -> inspection.Inspection:
    try:
        return inspection.inspect(folder)
    except InvalidRequest as error:
        raise InvalidRequest(f"Version {number}: {error.public_message}") from error


def locked(name: str) -> ServedModel:
    """The model, locked until the transaction ends. Raises :class:`NotFound`."""
    found = ServedModel.objects.select_for_update().filter(name=name).first()
    if found is None:
        raise NotFound(missing(name))
    return found


def _version(model: ServedModel, number: int) -> ModelVersion:
    found = ModelVersion.with_deleted.filter(model=model, number=number).first()
    if found is None or found.deleted_at is not None:
        raise NotFound(was_deleted(found) if found is not None else f"{model.name} has no version {number}.")
    found.model = model
    return found


def next_number(model: ServedModel) -> int:
    """The one after the highest; a deleted version counts."""
    numbers = ModelVersion.with_deleted.filter(model=model).order_by("-number").values_list("number", flat=True)
    highest = numbers.first()
    return (highest or 0) + 1


def check_name(name: str) -> None:
    """Return for a name that a model may have. Raises :class:`InvalidRequest`, :class:`Conflict`."""
    if not MODEL_NAME.match(name):
        raise InvalidRequest(
            "A model's name is letters, digits, '.', '_' or '-', starts with a letter or digit,"
            " and has at most 100 characters."
        )
    if name.lower() in RESERVED_MODEL_NAMES and not ServedModel.objects.filter(name=name).exists():
        raise InvalidRequest(
            f"\"{name}\" cannot be a model's name: it stands in paths of the API where models' names stand. These are "
            f"reserved: {', '.join(sorted(RESERVED_MODEL_NAMES))}."
        )
    require_free_name(name)
