"""Folders of versions on this machine: which may be registered, where uploads are stored, how paths are kept."""

from pathlib import Path
from typing import IO

from django.conf import settings

from console.bounds import MOST_NUMBER
from console.catalog import archives
from signalbox.program.errors import Conflict, InvalidRequest, TooLarge

_MOST_MEMBERS = 10_000
"""Files and folders of an archive: a SavedModel has some tens, and each costs an inode."""
_COPY_CHUNK = 1024 * 1024


def allowed(path: Path) -> Path:
    """Resolved, if the console may register it. Raises :class:`InvalidRequest`."""
    if not path.is_absolute():
        raise InvalidRequest("Give an absolute path, as the workers see it.")
    found = path.resolve()
    roots = settings.CONSOLE.allowed_folders
    if roots and not any(found.is_relative_to(root) for root in roots):
        raise InvalidRequest(f"{path} is outside the repository folders the console may use.")
    if not found.is_dir():
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
