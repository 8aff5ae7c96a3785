"""Keeps paths of model folders relative to named roots, so that they survive a move.

A folder below a named root is kept as ``<root>:<path below it>``, any other by its absolute path. What is published
is always absolute, as the roots are now: after a move the controller publishes the new paths by itself.
"""

from pathlib import Path

from django.conf import settings

from console.catalog.models import ModelVersion, ServedModel
from signalbox.program import log


def relocate() -> None:
    """Keep every absolute path that lies below a named root relative to it. Idempotent; for ``bootstrap``."""
    for version in ModelVersion.with_deleted.filter(path__startswith="/"):
        place = settings.CONSOLE.kept_path(Path(version.path))
        if place != version.path:
            log.info("model.relocated", model=version.model.name, version=version.number)
            ModelVersion.with_deleted.filter(pk=version.pk).update(path=place)
    for model in ServedModel.with_deleted.filter(base_path__startswith="/"):
        first = model.versions.order_by("pk").first()
        base = Path(first.folder).parent if first else Path(model.base_path)
        ServedModel.with_deleted.filter(pk=model.pk).update(base_path=settings.CONSOLE.kept_path(base))
    for version in (
        ModelVersion.with_deleted.exclude(path__startswith="/").exclude(path__contains="://").exclude(path="")
    ):
        if not version.folder.startswith("/"):
            log.warning("model.root_unknown", model=version.model.name, version=version.number, path=version.path)
