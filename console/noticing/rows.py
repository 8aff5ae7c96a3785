"""What noticing reads from and writes to the database: repositories, their versions, and their listings."""

from collections.abc import Callable, Collection, Coroutine, Mapping
from itertools import chain
from typing import Any, ParamSpec, TypeVar

from channels.db import database_sync_to_async
from django.db.models import Q

from console.accounts.models import System
from console.catalog.models import UPLOAD, ModelConfig, ModelVersion, ServedModel, StoredUpload
from console.catalog.names import owned
from console.catalog.tombstones import due_before
from console.config import UPLOADS
from console.noticing.plan import Known, KnownVersion, Refusal
from console.repositories.models import MOST_REFUSED, Listing, Repository

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(act: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Run ``act`` in a thread apart: thousands of registrations must not hold up what the controller publishes."""
    made: Callable[P, Coroutine[Any, Any, T]] = database_sync_to_async(act, thread_sensitive=False)
    return made


def noticed() -> list[Repository]:
    """Repositories to list now; none while the console is read-only."""
    return [] if System.current().is_read_only else list(Repository.objects.filter(is_noticed=True))


def fresh(row: Repository) -> Repository | None:
    """A repository as it is now; None where it is not noticed any more, or the console is read-only."""
    return next((one for one in noticed() if one.pk == row.pk), None)


def known(row: Repository) -> Known:
    """What is registered."""
    versions: dict[str, dict[int, KnownVersion]] = {}
    found = ModelVersion.objects.filter(model__repository=row).order_by("model_id")
    for name, number, manifest, rules, digest, ready_at, vanished_at, is_withdrawn in found.values_list(
        *("model__name", "number", "manifest", "rules", "digest", "first_ready_at", "vanished_at", "is_withdrawn")
    ):
        versions.setdefault(name, {})[number] = KnownVersion(
            manifest,
            rules,
            is_final=bool(digest or ready_at),
            vanished_at=vanished_at.timestamp() if vanished_at else None,
            is_withdrawn=is_withdrawn,
        )
    uploads: dict[str, set[int]] = {}
    if row.name == UPLOADS:
        for name, number in chain(
            ModelVersion.with_deleted.filter(source=UPLOAD).values_list("model__name", "number"),
            StoredUpload.objects.values_list("model", "number"),
        ):
            uploads.setdefault(name, set()).add(number)
    deleted: dict[str, set[int]] = {}
    marked = ModelVersion.with_deleted.exclude(deleted_at=None)
    for name, number in marked.values_list("model__name", "number"):
        deleted.setdefault(name, set()).add(number)
    stays_away = Q(repository=row) | Q(deleted_at__gt=due_before())
    gone = set(ServedModel.with_deleted.exclude(deleted_at=None).filter(stays_away).values_list("name", flat=True))
    configs = dict(ModelConfig.objects.filter(model__repository=row).values_list("model__name", "file"))
    return Known(versions, owners(row), uploads, configs, deleted, gone)


def owners(row: Repository, names: Collection[str] | None = None) -> dict[str, str]:
    """Models that are not its own, each with a sentence that says whose it is. names: of these; None = all."""
    others = ServedModel.objects.exclude(repository=row).select_related("repository")
    found = others if names is None else others.filter(name__in=names)
    return {model.name: owned(model.name, model.repository) for model in found}


def note_listing(row: Repository, values: Mapping[str, Any]) -> None:
    """Write what the last listing found, where the repository is still there."""
    if Repository.objects.filter(pk=row.pk).exists():
        Listing.objects.update_or_create(repository=row, defaults=values)


def refused_values(refused: Mapping[str, Refusal]) -> dict[str, Any]:
    """Columns of a listing."""
    shown = sorted(refused)[:MOST_REFUSED]
    return {"refused": {path: refused[path].why for path in shown}, "refusals": len(refused)}
