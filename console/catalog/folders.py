"""Folders of versions on this machine: which may be registered, where uploads are stored, how paths are kept."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings

from console.bounds import MOST_NUMBER
from console.catalog import archives
from signalbox.program.errors import Conflict, InvalidRequest, TooLarge

_MOST_MEMBERS = 10_000
"""Files and folders of an archive: a SavedModel has some tens, and each costs an inode."""
_COPY_CHUNK = 1024 * 1024
_STAGING = ".staging"
_MOST_SHOWN = 200
"""Letters of a path in a refusal."""


def allowed(path: Path) -> Path:
    """Resolved, if the console may register it. Raises :class:`InvalidRequest`."""
    if not path.is_absolute():
        raise InvalidRequest("Give an absolute path, as the workers see it.")
    try:
        found = path.resolve()
        is_folder = found.is_dir()
    except (OSError, ValueError) as error:  # a name is too long or has a NUL, links lead in a circle
        raise InvalidRequest(f"{str(path)[:_MOST_SHOWN]!r} cannot be the path of a folder.") from error
    roots = settings.CONSOLE.allowed_folders
    if roots and not any(found.is_relative_to(root) for root in roots):
        raise InvalidRequest(f"{path} is outside the repository folders the console may use.")
    if not is_folder:
        raise InvalidRequest(f"{path} is no folder on the console's machine.")
    return found


def versions_below(path: Path) -> tuple[Path, dict[int, Path]]:
    """The base folder, and each version below ``path`` by its number. Raises :class:`InvalidRequest`."""
    if (path / archives.SAVED_MODEL).is_file():
        return path.parent, {int(path.name) if path.name.isdecimal() else 1: path}
    found: dict[int, Path] = {}
    for child in sorted(path.iterdir()):
        if child.name.isdecimal() and (child / archives.SAVED_MODEL).is_file():
            if other := found.get(number := int(child.name)):
                raise InvalidRequest(
                    f"The folders {other.name} and {child.name} of {path} are both version {number}. Leave one of them."
                )
            found[number] = child
    if not found:
        raise InvalidRequest(f"{path} holds no <version>/{archives.SAVED_MODEL}.")
    return path, found


def home(name: str, number: int, known: str) -> Path:
    """Folder of an uploaded version. Raises :class:`Conflict` where it exists and is not ``known`` as the version's."""
    if not 1 <= number <= MOST_NUMBER:
        raise InvalidRequest(f"A version is a number from 1 to {MOST_NUMBER}.")
    folder: Path = settings.CONSOLE.repository / name / str(number)
    if folder.exists() and str(folder) != known:
        raise Conflict(f"There is a folder of version {number} already; choose another number.")
    return folder


@contextmanager
def staging() -> Iterator[Path]:
    """A folder of one upload's own, which is gone afterwards. Its flock says that the upload is under way."""
    folder: Path = settings.CONSOLE.repository / _STAGING / secrets.token_hex(8)
    folder.mkdir(parents=True, mode=0o700)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def clear_staging() -> None:
    """Remove what uploads have left whose program was killed. Idempotent; for ``bootstrap``."""
    for folder in (settings.CONSOLE.repository / _STAGING).glob("*"):
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def unpack(stream: IO[bytes], staging: Path) -> Path:
    """The folder with what an archive holds. Raises :class:`InvalidRequest` or :class:`TooLarge` with the reason."""
    cap = settings.CONSOLE.upload_max_bytes
    archive, content = staging / "archive", staging / "content"
    content.mkdir(mode=0o700)
    size = 0
    with archive.open("xb") as sink:
        while chunk := stream.read(_COPY_CHUNK):
            size += len(chunk)
            if size > cap:
                raise TooLarge(f"The archive is larger than {cap} bytes.")
            sink.write(chunk)
    caps = archives.Caps(max_bytes=cap, max_members=_MOST_MEMBERS)
    folder = archives.unpack(archive, content, caps)
    for part in [content, *content.rglob("*")]:
        # Workers run as another user: they may read; the folder is writable for no user.
        part.chmod(0o755 if part.is_dir() else 0o644)
    return folder
