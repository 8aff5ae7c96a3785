"""The unix socket's name: bound under one of its own, then renamed over the public one, which is never without."""

import os
from pathlib import Path
from typing import Final

_LONGEST: Final = 100
"""Bytes that a unix socket's path may have, less some."""


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
        """The bound socket takes the public name, from whatever process had it."""
        self.bound.chmod(mode)
        self.bound.rename(self.path)
        self._inode = _inode(self.path)

    @property
    def is_replaced(self) -> bool:
        """Whether another process has published its socket since, so that whoever redials reaches it."""
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
