"""A lock file that one process at a time holds, with its process id in it; the kernel frees it when that one ends."""

import fcntl
import os
from pathlib import Path
from typing import IO, Self


class HeldFile:
    """An exclusive lock on ``path``, which is made where it is missing and never removed. ``with`` waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        self._lock(fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> bool:
        """Hold it unless another process does. Raises :class:`OSError` where it cannot be opened."""
        try:
            self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def holder(self) -> str:
        """What its last holder wrote into it, its process id; ``unknown`` where nothing is written yet."""
        try:
            return self._path.read_text(encoding="utf-8").strip() or "unknown"
        except FileNotFoundError:
            return "unknown"

    def close(self) -> None:
        """Hold it no longer. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lock(self, how: int) -> None:
        file = self._path.open("a", encoding="utf-8")
        try:
            fcntl.flock(file, how)
        except OSError:
            file.close()
            raise
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
