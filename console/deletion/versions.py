"""Deletes a version, and takes that back. The marked row stays: its number never serves other bytes."""

from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog.lookup import locked
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.publishing import publish, publish_fitting
from console.catalog.targets import require_no_candidate
from console.catalog.tombstones import undo_until, was_deleted
from console.database import one_of
from console.deletion.marks import require_no_open_jobs, require_undoable
from console.feed.running import running
from signalbox.program.errors import Conflict, NotFound


def delete_version(actor: Actor, name: str, number: int, *, reason: str = "") -> ServedModel:
    """Delete a version: it is out of the catalog at once, and can be brought back for a while.

    Raises :class:`NotFound`, and :class:`Conflict` that names what needs it: the default, a label, a split, a
    rollout or an open job.
    """
    with act(actor, Act.MODELS_DELETE, Target("model", name), asked={"version": number}, reason=reason) as change:
        model = locked(name)
        version = _row(model, number)
        if version.deleted_at is not None:
            raise NotFound(was_deleted(version))
        _require_unneeded(model, version)
        served = model.selected()
        change.before = {"version": number, "digest": version.digest, "default": model.serving_version}
        version.deleted_at, version.deleted_by = timezone.now(), actor.name
        version.save(update_fields=["deleted_at", "deleted_by"])
        if served and not model.selected():
            raise Conflict(
                f"Version {number} is the only one of {name} that serves. Add another version first, or delete the"
                " model."
            )
        change.after = {"deleted": number, "default": model.serving_version, "undo_until": f"{undo_until(version)}"}
        publish(model, change)
    return model


def undo_version(actor: Actor, name: str, number: int, *, reason: str = "") -> ServedModel:
    """Bring a deleted version back, as it was. Raises :class:`NotFound`, and :class:`Conflict` where it is too late."""
    with act(actor, Act.MODELS_DELETE, Target("model", name), asked={"undo": number}, reason=reason) as change:
        model = locked(name)
        version = _row(model, number)
        require_undoable(version, f"version {number} of {name}")
        if not version.path:
            raise Conflict(f"The files of version {number} of {name} are gone. Register them under another number.")
        change.before = {"deleted": number, "default": model.serving_version}
        version.deleted_at, version.deleted_by = None, ""
        version.save(update_fields=["deleted_at", "deleted_by"])
        change.after = {"version": number, "digest": version.digest, "default": model.serving_version}
        publish_fitting(model, change)
    return model


def _row(model: ServedModel, number: int) -> ModelVersion:
    rows = ModelVersion.with_deleted.select_for_update().filter(model=model, number=number)
    return one_of(rows, f"{model.name} has no version {number}.")


def _require_unneeded(model: ServedModel, version: ModelVersion) -> None:
    number = version.number
    if model.default_version == number:
        raise Conflict(
            f"Version {number} is the default version of {model.name}. Make another one the default first, or"
            " delete the model."
        )
    if labels := list(version.labels.values_list("name", flat=True)):
        raise Conflict(
            f"Requests by {'label' if len(labels) == 1 else 'labels'} {', '.join(labels)} get version {number}. Move"
            " the label to another version, or take it away, first."
        )
    require_no_candidate(model, number)
    _require_no_rollout(model.name, number)
    require_no_open_jobs([model.name], number)


def _require_no_rollout(name: str, number: int) -> None:
    """Raise :class:`Conflict` where requests get the version until another one is ready, as far as this program sees.

    Else they would get the other one at once, though it is not ready or cannot be loaded, and an undo would not help.
    """
    feed = running.feed
    pending = feed.view.rollouts.pending(name) if feed is not None else ()
    for one in list(pending):
        if one.old == number:
            who = f"by label {one.label}" if one.label else "without a version"
            why = "failed to load" if one.has_failed else "is not ready yet"
            raise Conflict(
                f"Requests {who} still get version {number} of {name}: version {one.new} {why}. Wait until it is ready,"
                " or choose another one for them, first."
            )
