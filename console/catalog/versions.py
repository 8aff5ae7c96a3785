"""Adds versions of a model. One that never loaded may be added again with other files; any other is immutable."""

from pathlib import Path

import msgspec
from django.conf import settings
from django.utils import timezone

from console.accounts.rights import Actor
from console.catalog.inspection import Inspection
from console.catalog.models import ModelVersion, ServedModel
from console.feed.running import running
from signalbox.program.errors import Conflict, Unavailable
from signalbox.wire.rollout import RESIDENT


def add(
    model: ServedModel, number: int, path: Path, found: Inspection, source: str, actor: Actor
) -> tuple[ModelVersion, str]:
    """The version as it stands now, and the digest it had before; that is empty for a new one.

    Raises :class:`Conflict` where it is final, has these files already, or serves by name and would need approval,
    :class:`Unavailable` where it cannot be told whether it is final.
    """
    old = model.versions.select_for_update().filter(number=number).first()
    if old is not None:
        _require_replaceable(old, found)
    version, _ = ModelVersion.objects.update_or_create(
        model=model,
        number=number,
        defaults={
            "path": settings.CONSOLE.kept_path(path),
            "digest": found.digest,
            "size_bytes": found.size_bytes,
            "signatures": msgspec.to_builtins(found.signatures),
            "unknown_ops": found.verdict.unknown,
            "listed_ops": found.listed,
            "raised_ops": {},
            "approved_by": "",
            "source": source,
            "rules": found.rules,
            "added_by": actor.name,
            "added_at": timezone.now(),
        },
    )
    return version, old.digest if old is not None else ""


def require_open(version: ModelVersion) -> None:
    """Return if no worker has had the version in memory, nor loads it now.

    Raises :class:`Conflict`, or :class:`Unavailable` where this console does not see what workers do.
    """
    if version.first_ready_at is not None:
        raise _final(version)
    feed = running.feed
    if feed is None:
        return  # a program without pages goes by what the controller has noted
    if feed.is_blind:
        raise Unavailable(
            f"NATS is away, so the console cannot say whether a worker has version {version.number} in memory.",
            retry_after_s=5.0,
        )
    key = (version.model.name, version.number)
    states = {one.state for row in feed.view.workers() for one in row.models if (one.model, one.version) == key}
    if states & RESIDENT:
        raise _final(version)
    if states & {"loading", "fetching"}:
        raise Conflict(
            f"A worker fetches or loads version {version.number} of {version.model.name} now. Try again in a moment."
        )


def _require_replaceable(old: ModelVersion, found: Inspection) -> None:
    require_open(old)
    if old.digest == found.digest:
        raise Conflict(f"Version {old.number} of {old.model.name} is registered already, with these very files.")
    is_named = old.model.default_version == old.number or old.labels.exists()
    if found.listed and old.may_serve and is_named:
        raise Conflict(
            f"The new files of version {old.number} need approval. Until then it does not serve: make another version"
            " the default and take its labels away first."
        )


def _final(version: ModelVersion) -> Conflict:
    return Conflict(
        f"{version.model.name} has a version {version.number} already, which workers have loaded: versions are"
        " immutable from then on. Register the files under another number."
    )
