"""What noticing reads from and writes to the database: repositories, their versions, and their listings."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

from channels.db import database_sync_to_async

from console.accounts.models import System
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.services import owned
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
    others = ServedModel.objects.exclude(repository=row).select_related("repository")
    return Known(versions, {model.name: owned(model.name, model.repository) for model in others})


def note_listing(row: Repository, values: Mapping[str, Any]) -> None:
    """Write what the last listing found, where the repository is still there."""
    if Repository.objects.filter(pk=row.pk).exists():
        Listing.objects.update_or_create(repository=row, defaults=values)


def refused_values(refused: Mapping[str, Refusal]) -> dict[str, Any]:
    """Columns of a listing."""
    shown = sorted(refused)[:MOST_REFUSED]
    return {"refused": {path: refused[path].why for path in shown}, "refusals": len(refused)}
