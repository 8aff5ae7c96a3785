"""Deletes a model with all of its versions, and takes that back. Its name can be taken again after that."""

from datetime import datetime

from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import AuditedValues, Target, act
from console.catalog.lookup import locked
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.publishing import publish
from console.catalog.tombstones import undo_until
from console.database import one_of
from console.deletion.marks import require_no_open_jobs, require_undoable
from console.outbox.services import model_key, post_removals
from console.repositories.models import Repository
from signalbox.program.errors import Conflict
from signalbox.wire.names import Bucket


def delete_model(actor: Actor, name: str, *, reason: str = "") -> ServedModel:
    """Delete a model: its callers get 404 at once, and it can be brought back for a while.

    Its default and its labels go with it. Raises :class:`NotFound`, :class:`Conflict` where an open job needs it.
    """
    with act(actor, Act.MODELS_DELETE, Target("model", name), asked={}, reason=reason) as change:
        model = locked(name)
        require_no_open_jobs([name])
        change.before = {"default": model.serving_version}
        change.before["versions"] = sorted(model.versions.values_list("number", flat=True))
        mark(ServedModel.objects.filter(pk=model.pk), actor, timezone.now())
        model.refresh_from_db(from_queryset=ServedModel.with_deleted.all())
        change.after = {"undo_until": f"{undo_until(model)}"}
    return model


def undo_model(actor: Actor, name: str, *, reason: str = "") -> ServedModel:
    """Bring a deleted model back, as it was. Raises :class:`NotFound`, and :class:`Conflict` where it is too late, or
    it was deleted with its repository."""
    with act(actor, Act.MODELS_DELETE, Target("model", name), asked={"undo": True}, reason=reason) as change:
        # Locked before the model, as by who deletes it: else that does not see the model that comes back.
        repository = Repository.with_deleted.select_for_update(of=("self",)).filter(models__name=name).first()
        rows = ServedModel.with_deleted.select_for_update().filter(name=name)
        model = one_of(rows, f"There is no model {name!r}.")
        require_undoable(model, f"model {name}")
        if repository is not None and repository.deleted_at is not None:
            raise Conflict(f"{name} was deleted with the repository {repository}. Undo the deletion of that.")
        numbers = unmark(model)
        change.after = {"versions": sorted(numbers), "default": model.serving_version}
    return model


def mark(models: QuerySet[ServedModel], actor: Actor, at: datetime) -> int:
    """Mark models and their versions, and take them out of the catalog; how many models there are. Within the caller's
    transaction, which has them locked."""
    names = list(models.values_list("name", flat=True))
    marks = {"deleted_at": at, "deleted_by": actor.name}
    ModelVersion.objects.filter(model__in=models.values("pk")).update(**marks)
    models.update(**marks)
    post_removals(Bucket.MODELS, [(model_key(name), name) for name in names])
    return len(names)


def unmark(model: ServedModel) -> list[int]:
    """Bring a model back with the versions that were deleted with it, and publish it; their numbers. Within the
    caller's transaction, which has it locked."""
    with_it = ModelVersion.with_deleted.filter(model=model, deleted_at=model.deleted_at)
    if with_it.filter(path="").exists():
        raise Conflict(f"Files of {model.name} are gone. Register it anew, under other numbers.")
    numbers = list(with_it.values_list("number", flat=True))
    with_it.update(deleted_at=None, deleted_by="")
    model.deleted_at, model.deleted_by = None, ""
    publish(model, AuditedValues())
    return numbers
