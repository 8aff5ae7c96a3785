"""Adds versions of a model. One that never loaded may be added again with other files; any other is immutable."""

from typing import Final, NamedTuple

import msgspec
from django.utils import timezone

from console.accounts.rights import Actor
from console.catalog.inspection import Inspection
from console.catalog.models import REPOSITORY, ModelVersion, ServedModel, StoredUpload
from console.catalog.tombstones import require_free
from console.feed.running import running
from signalbox.program import metrics
from signalbox.program.errors import Conflict, Unavailable
from signalbox.wire.rollout import RESIDENT

REFUSED: Final = metrics.counter(
    "console_models_refused", "Models that were not taken, by what was wrong with them.", "reason"
)


class Candidate(NamedTuple):
    """A version to add. path: as :class:`ModelVersion` keeps it. manifest: of the files in its repository."""

    path: str
    found: Inspection
    manifest: str = ""


def add(model: ServedModel, number: int, new: Candidate, source: str, actor: Actor) -> tuple[ModelVersion, str]:
    """The version as it stands now, and the digest it had before; that is empty for a new one.

    Raises :class:`Conflict` where it is final, has these files already, was deleted, or serves by name and would need
    approval, :class:`Unavailable` where it cannot be told whether it is final.
    """
    found = new.found
    if found.listed:
        REFUSED.labels("operations that wait for approval").inc()
    require_free(model, number)
    old = model.versions.select_for_update().filter(number=number).first()
    if old is not None:
        require_replaceable(old, found)
        if new.path != old.path:
            StoredUpload.objects.filter(url=old.path).update(state=StoredUpload.LEAVING)
    replaced = old.digest if old is not None else ""
    version = old or ModelVersion(model=model, number=number)
    version.path, version.manifest, version.source = new.path, new.manifest, source
    version.vanished_at, version.is_withdrawn = None, False
    version.digest, version.size_bytes = found.digest, found.size_bytes
    version.signatures = msgspec.to_builtins(found.signatures)
    version.unknown_ops, version.listed_ops, version.raised_ops = found.verdict.unknown, found.listed, {}
    version.rules, version.approved_by = found.rules, ""
    version.added_by, version.added_at = actor.name, timezone.now()
    version.save()
    return version, replaced


def next_number(model: ServedModel) -> int:
    """The one after the highest; a deleted version counts."""
    numbers = ModelVersion.with_deleted.filter(model=model).order_by("-number").values_list("number", flat=True)
    highest = numbers.first()
    return (highest or 0) + 1


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


def require_replaceable(old: ModelVersion, found: Inspection) -> None:
    """Return if the version may get other files, these. Raises as :func:`add`."""
    require_open(old)
    if old.source == REPOSITORY and old.digest:  # a host has all bytes, and others go by their digest
        raise _final(old)
    if old.digest and old.digest == found.digest:
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
