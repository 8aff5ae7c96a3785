"""A folder as a repository: its files, as an object store's listing has them. Blocking; callers use a thread."""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from signalbox.program.errors import LimitExceeded, Unavailable
from signalbox.repositories.entry import MOST_ENTRIES, PAGE, Entry

_MOST_DEPTH: Final = 64
_SAID_DEPTH: Final = 2
"""Links that lead out are told of where models and versions lie."""
_PASSED: Final = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP}
"""What one file or folder may be: gone meanwhile, not for us, a link to itself."""


def walk(root: Path, *, most: int = MOST_ENTRIES, outside: list[str] | None = None) -> Iterator[list[Entry]]:
    """Every file below ``root``, at most :data:`PAGE` at a time, its path relative to it.

    Links are followed to what lies within ``root``, and no further; what may not be read is left out. outside: gets
    those of the first two levels that lead out. The etag changes with a file's time of change and its size. Raises
    :class:`Unavailable` where ``root`` or a disk cannot be read, and :class:`LimitExceeded` after ``most`` files and
    folders.
    """
    try:
        real = os.path.realpath(root, strict=True)
        os.scandir(real).close()
        entries = _Walk(real, most, outside if outside is not None else []).below(real, "", (real,))
        while page := list(islice(entries, PAGE)):
            yield page
    except OSError as error:
        raise Unavailable(f"The folder {root} cannot be read: {error.strerror}.") from error


class _Walk:
    def __init__(self, root: str, most: int, outside: list[str]) -> None:
        self._outside = outside
        self._inside = f"{root.rstrip('/')}/"
        self._most, self._left = most, most

    def below(self, folder: str, prefix: str, above: tuple[str, ...]) -> Iterator[Entry]:
        """above: the real folders that lead here; a link back to one of them is not followed."""
        children = _children(folder, self._left + 1)
        self._left -= len(children)
        if self._left < 0:
            raise LimitExceeded(f"The folder {self._inside} has more than {self._most} files and folders.")
        for child in children:
            path = os.path.realpath(child.path) if child.is_symlink() else child.path
            if not path.startswith(self._inside):
                if len(above) <= _SAID_DEPTH:
                    self._outside.append(f"{prefix}{child.name}")
                continue
            if (state := _state(path)) is None:
                continue
            if stat.S_ISREG(state.st_mode):
                yield Entry(f"{prefix}{child.name}", state.st_size, f"{state.st_mtime_ns}-{state.st_size}")
            elif stat.S_ISDIR(state.st_mode) and path not in above and len(above) < _MOST_DEPTH:
                yield from self.below(path, f"{prefix}{child.name}/", (*above, path))


def _children(folder: str, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(islice(found, most), key=lambda child: child.name)
    except OSError as error:
        if error.errno in _PASSED:
            return []
        raise


def _state(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116  a path as text, a million times
    except OSError as error:
        if error.errno in _PASSED:
            return None
        raise
