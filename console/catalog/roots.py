"""Keeps paths of model folders relative to named roots, so that they survive a move.

A folder below a named root is kept as ``<root>:<path below it>``, any other by its absolute path. What is published
is always absolute, as the roots are now: after a move the controller publishes the new paths by itself.
"""

from pathlib import Path

from django.conf import settings

from console.catalog import inspection
from console.catalog.archives import SAVED_MODEL
from console.catalog.models import ModelVersion, ServedModel
from signalbox.program import log
from signalbox.program.errors import SignalboxError


def relocate() -> None:
    """Keep every absolute path that lies below a named root relative to it. Idempotent; for ``bootstrap``.

    A version whose folder is not below any root may have been moved or copied with its root before that had a name:
    it is looked for below the roots there are, and taken where its digest says that it is the same one.
    """
    for version in ModelVersion.objects.filter(path__startswith="/"):
        path = Path(version.path)
        there = path if _is_served(path) else _elsewhere(path, version.digest) or path
        place = settings.CONSOLE.kept_path(there)
        if place != version.path:
            log.info("model.relocated", model=version.model.name, version=version.number)
            ModelVersion.objects.filter(pk=version.pk).update(path=place)
    for model in ServedModel.objects.filter(base_path__startswith="/"):
        first = model.versions.order_by("pk").first()
        base = Path(first.folder).parent if first else Path(model.base_path)
        ServedModel.objects.filter(pk=model.pk).update(base_path=settings.CONSOLE.kept_path(base))
    for version in ModelVersion.objects.exclude(path__startswith="/"):
        if not version.folder.startswith("/"):
            log.warning("model.root_unknown", model=version.model.name, version=version.number, path=version.path)


def _is_served(path: Path) -> bool:
    folders = settings.CONSOLE.allowed_folders
    return path.is_dir() and (not folders or any(map(path.is_relative_to, folders)))


def _elsewhere(vanished: Path, digest: str) -> Path | None:
    """The folder below a root that ends as ``vanished`` does, the longest such end first, and holds these files."""
    for at in range(1, len(vanished.parts)):
        for root in settings.CONSOLE.roots.values():
            folder = root.joinpath(*vanished.parts[at:])
            if (folder / SAVED_MODEL).is_file() and _digest(folder) == digest:
                return folder
    return None


def _digest(folder: Path) -> str:
    try:
        return inspection.inspect(folder).digest
    except SignalboxError:
        return ""
