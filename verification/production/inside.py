"""Finds the processes of a container by network namespace and root folder."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def is_contained(pid: int) -> bool:
    """Whether a process has arrived in its container: the launcher's last step but one changes its root."""
    try:
        root, ours = Path(f"/proc/{pid}/root").stat(), Path("/").stat()
    except OSError:
        return False
    return (root.st_dev, root.st_ino) != (ours.st_dev, ours.st_ino)


def kill_all(namespace: Path) -> None:
    """SIGKILL to every contained process in a network namespace.

    One that was only sent in from outside, as ``ip netns exec`` does, has this machine's root and is spared.
    """
    try:
        inode = namespace.stat().st_ino
    except FileNotFoundError:
        return
    for pid in _inside(inode):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _inside(inode: int) -> Iterator[int]:
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdecimal() and (path / "ns" / "net").stat().st_ino == inode:
                pid = int(path.name)
                if is_contained(pid):
                    yield pid
