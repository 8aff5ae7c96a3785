"""What deleted versions and models leave behind: numbers that are never used again, and names that are free later."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from console.catalog.models import ModelConfig, ModelVersion, ServedModel, VersionLabel, VersionSplit
from console.repositories.models import Repository
from signalbox.program.errors import Conflict

Marked = ModelVersion | ServedModel | Repository


def undo_until(row: Marked) -> datetime:
    """Until when a deletion can be taken back. The row is marked."""
    assert row.deleted_at is not None
    until: datetime = row.deleted_at + timedelta(seconds=settings.CONSOLE.deleted_kept_s)
    return until


def due_before() -> datetime:
    """What was deleted before this cannot be brought back."""
    before: datetime = timezone.now() - timedelta(seconds=settings.CONSOLE.deleted_kept_s)
    return before


def was_deleted(row: Marked) -> str:
    """Who deleted it and when, as a sentence."""
    if isinstance(row, ModelVersion):
        what = f"Version {row.number} of {row.model.name}"
    else:
        what = f"{'Model' if isinstance(row, ServedModel) else 'Repository'} {row.name}"
    assert row.deleted_at is not None
    return f"{what} was deleted by {row.deleted_by} at {row.deleted_at:%Y-%m-%d %H:%M:%S} UTC."


def missing(name: str) -> str:
    """Why there is no model of this name, as a sentence."""
    old = ServedModel.with_deleted.exclude(deleted_at=None).filter(name=name).first()
    return was_deleted(old) if old is not None else f"There is no model {name!r}."


def require_free(model: ServedModel, number: int) -> None:
    """Raise :class:`Conflict` for the number of a deleted version: it serves no other bytes, and its own by undo."""
    old = ModelVersion.with_deleted.exclude(deleted_at=None).filter(model=model, number=number).first()
    if old is not None:
        raise Conflict(f"{was_deleted(old)} Its number is not used again: take another one, or undo the deletion.")


def require_free_name(name: str, repository: Repository | None = None) -> None:
    """Raise :class:`Conflict` for the name of a model whose deletion can be undone, or whose own repository lists it.

    repository: the one that would bring it; None = a person does.
    """
    old = ServedModel.with_deleted.exclude(deleted_at=None).filter(name=name).first()
    if old is not None:
        _require_takeable(old, repository)


def begun_anew(name: str, repository: Repository | None, given: Mapping[str, Any]) -> ServedModel | None:
    """A model under the name of a deleted one, with nothing of that but its tombstones; None where there is no such
    name. given: its columns. Raises as :func:`require_free_name`.
    """
    old = ServedModel.with_deleted.select_for_update().exclude(deleted_at=None).filter(name=name).first()
    if old is None:
        return None
    _require_takeable(old, repository)
    VersionLabel.objects.filter(model=old).delete()
    VersionSplit.objects.filter(model=old).delete()
    ModelConfig.objects.filter(model=old).delete()
    fresh = ServedModel(pk=old.pk, name=name, **given)
    fresh.save(force_update=True)
    return fresh


def _require_takeable(old: ServedModel, repository: Repository | None) -> None:
    until = undo_until(old)
    if timezone.now() < until:
        raise Conflict(
            f"{was_deleted(old)} Its name can be taken again from {until:%Y-%m-%d %H:%M:%S} UTC on. Undo the deletion,"
            " or choose another name."
        )
    if repository is not None and old.repository_id == repository.pk:
        raise Conflict(f"{was_deleted(old)} Its repository does not bring it back; register it by its path.")
