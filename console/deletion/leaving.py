"""Removes the files of deleted uploads once that cannot be undone any more. No other files are ever touched.

Versions of a repository lie in somebody else's place, and so do those that were registered by a path: only what the
console has written itself goes.
"""

from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.catalog import folders, storing
from console.catalog.models import UPLOAD, ModelVersion, StoredUpload
from console.catalog.tombstones import due_before
from console.database import repeat
from signalbox.program import log

_AT_ONCE: Final = 100


async def keep_swept(every_s: float) -> None:
    """Until cancelled: remove what deletions, failed uploads and replaced versions have left."""
    await repeat(sweep, every_s, "uploads.sweep_failed", thread_sensitive=False)


def sweep() -> None:
    """Remove once; of a store that is away the files stay until the next time. Idempotent."""
    for pk in _due().values_list("pk", flat=True)[:_AT_ONCE]:
        with folders.staging() as staging:
            _give_up(pk, staging)
    storing.sweep(timezone.now())


def _due() -> QuerySet[ModelVersion]:
    return ModelVersion.with_deleted.filter(source=UPLOAD, deleted_at__lte=due_before()).exclude(path="")


def _give_up(pk: int, staging: Path) -> None:
    """Have a version's files removed, unless it was brought back meanwhile. staging: what lies there is removed."""
    with transaction.atomic():
        version = _due().select_for_update().filter(pk=pk).first()
        if version is None:
            return
        if not _has_another_user(version):
            if version.is_remote:
                StoredUpload.objects.filter(url=version.path).update(state=StoredUpload.LEAVING)
            else:
                _take_away(Path(version.folder), staging)
        version.path = ""
        version.save(update_fields=["path"])
    log.info("deletion.files_removed", model=version.model.name, version=version.number)


def _take_away(folder: Path, staging: Path) -> None:
    if folder.is_dir() and folder.resolve().is_relative_to(settings.CONSOLE.repository):
        folder.rename(staging / "deleted")


def _has_another_user(version: ModelVersion) -> bool:
    """Whether somebody has registered the same files, or some of them, by their path."""
    others = ModelVersion.with_deleted.exclude(pk=version.pk)
    return others.filter(Q(path=version.path) | Q(path__startswith=f"{version.path}/")).exists()
