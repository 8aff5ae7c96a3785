"""Registers models and versions. Slow preparations (inspection) happen before the transaction."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import IntegrityError

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import AuditedValues, Target, act, check, preparing
from console.bounds import MOST_NUMBER
from console.catalog import folders, inspection, triton, versions
from console.catalog.lookup import locked
from console.catalog.models import REPOSITORY, ModelVersion, ServedModel
from console.catalog.modelsettings import assign
from console.catalog.names import check_name, owned
from console.catalog.publishing import publish, publish_fitting
from console.catalog.targets import choose_default
from console.catalog.tombstones import begun_anew, missing, was_deleted
from console.catalog.versions import Candidate
from console.catalog.warmups import warm_ups
from console.repositories.models import Repository
from signalbox.program.errors import Conflict, InvalidRequest


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
    changes, policy: of a new model. is_default: see :func:`targets.choose_default`; of several new versions the
    highest is meant. A version with operations that need approval does not serve before :func:`approval.approve`.
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


def check_rights(actor: Actor, target: Target, is_default: bool | None, asked: Mapping[str, Any]) -> None:
    """Return for who may add versions and, where it is asked for, choose the default. Raises :class:`Forbidden`."""
    check(actor, Act.MODELS_REGISTER, target, asked=asked)
    if is_default is not None:
        check(actor, Act.MODELS_ROLLOUT, target, asked=asked)


def choice(is_default: bool | None) -> dict[str, bool]:
    """What was said of the default, for the audit: nothing where nothing was."""
    return {} if is_default is None else {"is_default": is_default}


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
    assign(model, changes)
    said = {"description": description, "policy": policy}
    return model, ({field: value for field, value in said.items() if value} if is_new else {}) | dict(changes)


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
        _, replaced = versions.add(model, number, candidate, source, actor)
        if replaced:
            change.before[f"digest of {number}"] = replaced
            change.after[f"digest of {number}"] = candidate.found.digest
    choose_default(model, before, max(new), is_default)
    if listed := {op: why for candidate in new.values() for op, why in candidate.found.listed.items()}:
        change.after["awaits_approval"] = listed
    change.after["default"] = publish_fitting(model, change).default_version


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
