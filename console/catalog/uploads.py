"""Adds a version from an archive, and keeps its files in the default repository: a folder, or an object store."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act, preparing
from console.catalog import folders, inspection, publishing, registration, storing, targets, tombstones, versions
from console.catalog.models import UPLOAD, ModelVersion, ServedModel
from console.catalog.names import check_name
from console.catalog.versions import Candidate
from signalbox.program.errors import InvalidRequest, Unavailable


def upload(
    actor: Actor,
    name: str,
    archive: IO[bytes],
    *,
    number: int | None = None,
    description: str = "",
    changes: Mapping[str, Any] | None = None,
    is_default: bool | None = None,
) -> ModelVersion:
    """Add one version from an archive; the next number unless one is given. One that never loaded is replaced.

    changes, is_default: as :func:`registration.register` has them. One with operations that need approval does not
    serve before :func:`approval.approve`. Whatever is raised, no file of it stays.
    Raises :class:`InvalidRequest` or :class:`TooLarge` with the reason, :class:`Conflict` if the number is taken or
    the model has settings of its own, and what an object store raises where files are kept in one.
    """
    target = Target("model", name)
    asked = {
        "version": "the next one" if number is None else number,
        **registration.choice(is_default),
        **(changes or {}),
    }
    registration.check_rights(actor, target, is_default, asked)
    with folders.staging() as staging:
        with preparing(actor, Act.MODELS_REGISTER, target, asked=asked):
            check_name(name)
            folder = _unpacked(archive, staging)
            found = inspection.inspect(folder)
            is_remote = not settings.CONSOLE.uploads.is_local
            stored = storing.write(actor, name, number, folder, found) if is_remote else None
        with storing.dropped_on_failure(stored), act(actor, Act.MODELS_REGISTER, target, asked=asked) as change:
            model, given = registration.found_or_made(name, _base(name), description, changes or {})
            before = model.serving_version
            home = None
            if stored is not None:
                chosen, path = stored.number, stored.url
                storing.keep(stored)
            else:
                chosen = number if number is not None else versions.next_number(model)
                home = _home(model, chosen)
                path = settings.CONSOLE.kept_path(home)
            version, replaced = versions.add(model, chosen, Candidate(path, found), UPLOAD, actor)
            targets.choose_default(model, before, chosen, is_default)
            change.before = {"default": before, **({"digest": replaced} if replaced else {})}
            change.after = {
                "version": chosen,
                "digest": found.digest,
                "size_bytes": found.size_bytes,
                "default": model.serving_version,
                **given,
            }
            if found.listed:
                change.after["awaits_approval"] = found.listed
            publishing.publish(model, change)
            if home is not None:
                # The move is the last step that can fail, so a version in the database is on disk.
                home.parent.mkdir(parents=True, exist_ok=True)
                if home.exists():
                    home.rename(staging / "replaced")
                folder.rename(home)
    return version


def _base(name: str) -> str:
    console = settings.CONSOLE
    base: str = (
        console.kept_path(console.repository / name) if console.uploads.is_local else console.uploads.below(name).url
    )
    return base


def _home(model: ServedModel, number: int) -> Path:
    tombstones.require_free(model, number)
    known = model.versions.filter(number=number).first()
    return folders.home(model.name, number, known.folder if known is not None else "")


def _unpacked(stream: IO[bytes], staging: Path) -> Path:
    try:
        return folders.unpack(stream, staging)
    except InvalidRequest:
        versions.REFUSED.labels("archive").inc()
        raise
    except OSError as error:
        raise Unavailable(f"The console cannot keep the archive: {error.strerror}.") from error
