"""A disk that is small: a tmpfs that can be filled. Needs root."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from verification.chaos.environment.namespace import run


class SmallDisk(NamedTuple):
    """``with SmallDisk(folder, size_mb)``: a tmpfs on ``folder``, which :meth:`fill` leaves no room on."""

    folder: Path
    size_mb: int

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={self.size_mb}m,mode=700", "chaos", str(self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        run("umount", "--lazy", str(self.folder))

    def fill(self) -> int:
        """Take all room that is left; bytes."""
        size = 0
        with (self.folder / "filler").open("wb", buffering=0) as file:
            while True:
                try:
                    size += file.write(b"\0" * 65_536)
                except OSError:
                    return size

    def free(self) -> None:
        """Give it back."""
        (self.folder / "filler").unlink()


@contextlib.contextmanager
def data_with_a_small_disk(size_mb: int, below: str = "nats") -> Iterator[SmallDisk]:
    """A data folder for ``signalbox up`` whose part ``below`` is the disk; empty: all of it.

    Not below pytest's own folders: another session's pytest clears those away, and fails at a mount in them.
    """
    folder = Path(tempfile.mkdtemp(prefix="signalbox-disk-"))
    try:
        with SmallDisk(folder / below, size_mb) as disk:
            yield disk
    finally:
        shutil.rmtree(folder, ignore_errors=True)
