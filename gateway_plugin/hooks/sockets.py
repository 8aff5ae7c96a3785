"""Publishes a unix socket: bound under a name of its own, then renamed over the public name, which always exists."""

import os
from pathlib import Path
from typing import Final

_LONGEST: Final = 100
"""Longest path of a unix socket, in bytes; a little below what the kernel takes."""


class SocketName:
    """The public ``path`` of a unix socket. bound: what the server binds before :meth:`publish`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bound = path.with_name(f"{path.name}.{os.getpid()}")
        self._inode = 0
        if len(str(self.bound)) > _LONGEST:
            raise OSError("the path is too long for a unix socket")
        self.bound.unlink(missing_ok=True)  # of a process that had our number and died

    def publish(self, mode: int) -> None:
        """Rename the bound socket to the public name, which another process may have had."""
        self.bound.chmod(mode)
        self.bound.rename(self.path)
        self._inode = _inode(self.path)

    @property
    def is_replaced(self) -> bool:
        """Whether another process has published its socket since, so that a client that redials reaches it."""
        return bool(self._inode) and _inode(self.path) not in {0, self._inode}

    def remove(self) -> None:
        """Take the public name away, if it is ours still. Idempotent."""
        if self._inode and _inode(self.path) == self._inode:
            self.path.unlink(missing_ok=True)
        self._inode = 0


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
