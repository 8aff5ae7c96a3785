"""What was deleted and can be brought back: one list for pages and REST."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from django.db.models import QuerySet

from console.catalog.models import ModelVersion, ServedModel
from console.catalog.tombstones import Marked, due_before, undo_until
from console.repositories.models import Repository
from signalbox.wire.access import is_among

_MOST: Final = 1000
Row = TypeVar("Row", ModelVersion, ServedModel, Repository)


class Undoable(NamedTuple):
    """Something deleted. kind: ``repository``, ``model`` or ``version``. name: of the repository, or the model.
    until: when it is too late to bring it back."""

    kind: str
    name: str
    version: int | None
    deleted_at: datetime
    deleted_by: str
    until: datetime

    @property
    def what(self) -> str:
        """What was deleted, in words."""
        return f"version {self.version} of {self.name}" if self.kind == "version" else f"{self.kind} {self.name}"


def undoable(model: str = "", only: Sequence[str] = ()) -> list[Undoable]:
    """The newest deletions first, at most so many. What was deleted with a model or a repository is not listed apart.

    model: versions of this one alone. only: names, or beginnings of names, of all models that may be shown.
    """
    late = due_before()
    versions = ModelVersion.with_deleted.filter(deleted_at__gt=late, model__deleted_at=None).exclude(path="")
    if model:
        versions = versions.filter(model__name=model)
    found = [_of("version", one) for one in _newest(versions.select_related("model").defer("signatures"))]
    if not model:
        models = ServedModel.with_deleted.filter(deleted_at__gt=late, repository__deleted_at=None)
        found += [_of("model", one) for one in _newest(models)]
        found += [_of("repository", one) for one in _newest(Repository.with_deleted.filter(deleted_at__gt=late))]
    if only:
        found = [one for one in found if one.kind != "repository" and is_among(only, one.name)]
    return sorted(found, key=lambda one: one.deleted_at, reverse=True)[:_MOST]


def of(row: ServedModel | Repository) -> Undoable:
    """What can be brought back of a model or a repository that is deleted now."""
    return _of("model" if isinstance(row, ServedModel) else "repository", row)


def _newest(rows: QuerySet[Row]) -> QuerySet[Row]:
    return rows.order_by("-deleted_at")[:_MOST]


def _of(kind: str, row: Marked) -> Undoable:
    assert row.deleted_at is not None
    name, version = (row.model.name, row.number) if isinstance(row, ModelVersion) else (row.name, None)
    return Undoable(kind, name, version, row.deleted_at, row.deleted_by, undo_until(row))
