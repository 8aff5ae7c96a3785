"""What becomes of versions that a repository brought: pinned by their digest, missing, withdrawn, and back."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import AuditedValues, Target, act
from console.catalog.lookup import locked
from console.catalog.models import REPOSITORY, ModelVersion, ServedModel
from console.catalog.publishing import publish
from console.repositories.models import Repository


def note_missing(repository: Repository, name: str, numbers: Collection[int], at: datetime) -> None:
    """Note since when files of these versions are missing. They are served until :func:`withdraw`."""
    _versions(repository, name, numbers).filter(vanished_at=None).update(vanished_at=at)


def withdraw(actor: Actor, repository: Repository, name: str, numbers: Collection[int], reason: str) -> None:
    """Serve these versions no more. Their rows, labels and the choice of a default stay: files may come back.

    Idempotent.
    """
    changed = {"is_withdrawn": True}
    _change(actor, repository, name, _versions(repository, name, numbers).filter(is_withdrawn=False), changed, reason)


def restore(actor: Actor, repository: Repository, name: str, numbers: Collection[int], reason: str) -> None:
    """Serve these versions, whose files are back. Idempotent."""
    back = _versions(repository, name, numbers)
    _change(actor, repository, name, back.filter(is_withdrawn=True), {"is_withdrawn": False}, reason)
    back.update(vanished_at=None)


def note_manifest(repository: Repository, name: str, number: int, manifest: str) -> None:
    """Note that a version's files have other ETags; names and sizes are as they were."""
    _versions(repository, name, [number]).update(manifest=manifest)


def unpinned() -> dict[tuple[str, int], int]:
    """Versions of repositories whose bytes have no digest yet: model and number to row."""
    rows = ModelVersion.objects.filter(source=REPOSITORY, digest="").values_list("model__name", "number", "pk")
    return {(name, number): pk for name, number, pk in rows}


def pin(pk: int, digest: str) -> None:
    """Note which bytes a version (its row) has, and publish it. Idempotent."""
    with transaction.atomic():
        model = ServedModel.objects.select_for_update(of=("self",)).filter(versions__pk=pk).first()
        if model is not None and ModelVersion.objects.filter(pk=pk, digest="").update(digest=digest):
            publish(model, AuditedValues())


def _versions(repository: Repository, name: str, numbers: Collection[int]) -> QuerySet[ModelVersion]:
    return ModelVersion.objects.filter(
        model__name=name, model__repository=repository, source=REPOSITORY, number__in=numbers
    )


def _change(
    actor: Actor,
    repository: Repository,
    name: str,
    rows: QuerySet[ModelVersion],
    changed: Mapping[str, Any],
    reason: str,
) -> None:
    numbers = sorted(rows.values_list("number", flat=True))
    if not numbers:
        return
    with act(actor, Act.MODELS_REGISTER, Target("model", name), reason=reason) as change:
        model = locked(name)
        before = model.serving_version
        rows.update(**changed)
        change.before = {"default": before}
        change.after = {"repository": repository.name, "versions": numbers, **changed, "default": model.serving_version}
        publish(model, change)
