"""Deletes a repository with the models that it brought, and takes that back. Nothing that lies there is touched."""

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog import publishing
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.tombstones import undo_until, was_deleted
from console.database import one_of
from console.deletion.marks import require_no_open_jobs, require_undoable
from console.deletion.wholemodels import mark
from console.repositories import services
from console.repositories.models import Repository
from signalbox.program.errors import Conflict, NotFound


def delete(actor: Actor, name: str, *, reason: str = "") -> Repository:
    """Delete a repository: it is listed no more, and callers of its models get 404 at once.

    Raises :class:`NotFound`, and :class:`Conflict` where an open job needs one of its models, or it is one of the
    settings' folders.
    """
    with act(actor, Act.REPOSITORIES_MANAGE, Target("repository", name), asked={}, reason=reason) as change:
        repository = _row(name)
        if repository.deleted_at is not None:
            raise NotFound(was_deleted(repository))
        if name in settings.CONSOLE.roots:
            raise Conflict(
                f"{name} is a place of this console's settings (SIGNALBOX_CONSOLE_REPOSITORY_ROOTS,"
                " ..._REPOSITORY_DIR, ..._UPLOADS_URL). Take it out there first, or stop noticing it."
            )
        change.before = services.shown(repository)
        models = ServedModel.objects.select_for_update().filter(repository=repository)
        require_no_open_jobs(models.values_list("name", flat=True))
        at = timezone.now()
        change.after = {"models_deleted": mark(models, actor, at)}
        repository.deleted_at, repository.deleted_by = at, actor.name
        repository.save(update_fields=["deleted_at", "deleted_by"])
        change.after["undo_until"] = f"{undo_until(repository)}"
    return repository


def undo(actor: Actor, name: str, *, reason: str = "") -> Repository:
    """Bring a deleted repository back, with the models that were deleted with it.

    Raises :class:`NotFound`, and :class:`Conflict` where it is too late, or another repository has its place now.
    """
    with act(actor, Act.REPOSITORIES_MANAGE, Target("repository", name), asked={"undo": True}, reason=reason) as change:
        repository = _row(name)
        require_undoable(repository, f"repository {name}")
        services.require_apart(repository.url, name)
        with_it = ServedModel.with_deleted.filter(repository=repository, deleted_at=repository.deleted_at)
        change.after = {**services.shown(repository), "models": _bring_back(with_it)}
        repository.deleted_at, repository.deleted_by = None, ""
        repository.save(update_fields=["deleted_at", "deleted_by"])
        publishing.publish_all(repository)
    return services.find(name)


def _bring_back(models: QuerySet[ServedModel]) -> int:
    """Take the marks off models and the versions that were deleted with them; how many models there are."""
    at = models.values_list("deleted_at", flat=True).first()
    if at is None:
        return 0
    ModelVersion.with_deleted.filter(model__in=models, deleted_at=at).update(deleted_at=None, deleted_by="")
    return models.update(deleted_at=None, deleted_by="")


def _row(name: str) -> Repository:
    rows = Repository.with_deleted.select_for_update().filter(name=name)
    return one_of(rows, f"There is no repository {name!r}.")
