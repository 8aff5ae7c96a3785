"""The private folders of runners: each is locked by its runner, and removed by whoever finds it without one.

A confined process cannot remove its own, and one that is killed removes nothing: the program that started it does so
when it has ended, and each that makes one does so for those that a kill has left.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.sandbox.privileges import SystemUser

_PREFIX: Final = "signalbox-runner-"


def make(user: SystemUser | None) -> Path:
    """A new private folder, of ``user`` if there is one, until this process ends."""
    sweep(user)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        if _is_locked(folder):  # else somebody has found it without a lock
            break
    if user is not None:
        os.chown(folder, user.uid, user.gid)
    return folder


def _is_locked(folder: Path) -> bool:
    """Whether it was still there to be locked, until this process ends."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(fd, fcntl.LOCK_SH)
    if folder.exists():
        return True
    os.close(fd)
    return False


def sweep(user: SystemUser | None) -> None:
    """Remove the folders of runners that are gone: this user's, and those of ``user``."""
    owners = {os.geteuid()} | ({user.uid} if user is not None else set())
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_if_free(folder, owners)


def _remove_if_free(folder: Path, owners: set[int]) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid in owners:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(fd)
