"""A disk of its own for one NATS node, whose power can be cut: ext4 in a file, behind a loop device.

What was synced is there afterwards, what only lay in the kernel's memory is not. Needs root, ext4 and loop devices;
:func:`reason_against` says in words what is missing.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

SIZE_MB: Final = 512
"""Of the file as it looks; on the machine's own disk it takes what was written."""
_SHUTDOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN, as xfstests' ``godown`` calls it."""
_AT_ONCE: Final = struct.pack("I", 2)
"""EXT4_GOING_FLAGS_NOLOGFLUSH: neither dirty pages nor the journal's waiting part are written."""
_TOOLS: Final = ("mkfs.ext4", "mount", "umount")


class Disk:
    """``with Disk(folder) as disk``: a file system of its own on ``folder``, gone with the block however that ends."""

    def __init__(self, folder: Path, size_mb: int = SIZE_MB) -> None:
        self.folder = folder
        self._size_mb = size_mb
        self._image = folder.with_name(f"{folder.name}.img")
        self._kept = folder.with_name(f"{folder.name}.kept")
        self._is_founded = self._is_mounted = False

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(self._size_mb << 20)
        try:
            _run("mkfs.ext4", "-q", "-F", str(self._image))
            # A runner's own mount namespace holds a copy of every mount. Only below a shared one do they go together,
            # and as long as one is left the next mount meets the file system that was shut down.
            _run("mount", "--bind", "--make-shared", str(self.folder), str(self.folder))
            self._is_founded = True
            self.put_back()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for is_there in (self._is_mounted, self._is_founded):
            if is_there:  # lazily: while a process has a file open on it, it stays
                subprocess.run(("umount", "--lazy", str(self.folder)), check=False, timeout=60)
        self._image.unlink(missing_ok=True)
        self._kept.unlink(missing_ok=True)

    def cut(self) -> None:
        """No power from this instant: no write or sync of anybody's succeeds any more, and nothing is caught up on."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, _AT_ONCE)
        finally:
            os.close(folder)

    def put_back(self) -> None:
        """Power again: the journal is replayed. No process may have a file open on it."""
        self._take_out()
        _run("mount", "-o", "loop", str(self._image), str(self.folder))
        self._is_mounted = True

    def keep(self) -> None:
        """Remember what is on it, after a :meth:`cut`."""
        self._take_out()
        _run("cp", "--sparse=always", str(self._image), str(self._kept))

    def roll_back(self) -> None:
        """A disk that lied, after a :meth:`cut`: what was synced since :meth:`keep` is not there either."""
        self._take_out()
        self._kept.replace(self._image)

    def _take_out(self) -> None:
        if self._is_mounted:
            _run("umount", str(self.folder))  # the kernel detaches the loop device with it
            self._is_mounted = False


def reason_against() -> str:
    """Why a disk's power cannot be cut here; empty where it can, and what was synced survives it."""
    if os.geteuid() != 0:
        return "a disk of its own needs root"
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    try:
        with tempfile.TemporaryDirectory(prefix="chaos-disk-") as folder:
            return _tried(Path(folder))
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", b"") or b""
        return f"the kernel refuses: {words.decode(errors='replace').strip() or error}"


def _tried(folder: Path) -> str:
    with Disk(folder / "disk", 16) as disk:
        synced = disk.folder / "synced"
        with synced.open("wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        disk.cut()
        disk.put_back()
        return "" if synced.exists() else "what was synced is gone after a power cut"


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
