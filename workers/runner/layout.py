"""Lays a version's files out in another folder: by reference where the file system can, else as a copy.

The tree is walked by descriptors and what is opened is looked at, not what its name said before, so that nothing
which is exchanged meanwhile leads elsewhere. Links lead to places within the version only.
"""

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from signalbox.program.errors import ModelError, Unavailable

_FICLONE: Final = 0x40049409
_CHUNK_BYTES: Final = 16 << 20
_SPARE_BYTES: Final = 64 << 20
"""Room that a copy leaves on its disk."""
_NO_CLONE: Final = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
_OUR_OWN: Final = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""What the worker has run out of, whatever the version is."""
_NO_LINK: Final = _NO_CLONE | {errno.EMLINK, errno.EACCES, errno.ENOENT}


def lay_out(
    source: Path, place: Path, roots: Sequence[str], is_for_others: bool, is_stopped: Callable[[], bool]
) -> dict[str, int]:
    """Make ``place`` with the files below ``source``; how many files came there which way.

    roots: where ``source`` must lie, whatever links lead there; empty = anywhere. is_for_others: another user reads
    them. Raises :class:`ModelError`, :class:`Unavailable` where the worker cannot; then, or once it is stopped,
    nothing stays.
    """
    try:
        layout = _Layout(source, place, roots, is_for_others, is_stopped)
        try:
            layout.run()
        finally:
            layout.close()
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _OUR_OWN:
            raise _cannot(error.strerror) from error
        if isinstance(error, PermissionError):
            raise ModelError("The version's folder may not be read by the worker.") from error
        if isinstance(error, OSError):
            raise ModelError(f"The version's files cannot be read: {error.strerror}.") from error
        raise
    return dict(layout.ways)


def real_folder(source: Path, roots: Sequence[str]) -> int:
    """A descriptor of the folder ``source``. Raises :class:`ModelError` where it really lies outside of ``roots``."""
    fd = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    home = _path_of(fd)
    if roots and not any(home.is_relative_to(os.path.realpath(root)) for root in roots):
        os.close(fd)
        raise ModelError(
            "The version's folder lies outside of the folders that models are read from, or is a link out of them;"
            " SIGNALBOX_WORKER_MODEL_FOLDERS names them."
        )
    return fd


class _Layout:
    """One version on its way. ways: number of files by how they came."""

    def __init__(
        self, source: Path, place: Path, roots: Sequence[str], is_for_others: bool, is_stopped: Callable[[], bool]
    ) -> None:
        self.ways: Counter[str] = Counter()
        self._place = place
        self._readable = 0o444 if is_for_others else 0o400
        self._is_stopped = is_stopped
        self._home_fd = real_folder(source, roots)
        self._home = _path_of(self._home_fd)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._home_fd)

    def run(self) -> None:
        """All of it."""
        try:
            _make_folder(self._place)
        except OSError as error:
            raise _cannot(error.strerror) from error
        for folder, folders, files, fd in os.fwalk(".", dir_fd=self._home_fd, onerror=_raise):
            here = self._place / folder
            for name in (*folders, *files):
                self._go_on()
                kind = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                if stat.S_ISDIR(kind):
                    _make_folder(here / name)
                elif stat.S_ISLNK(kind):
                    self._lead(name, fd, here)
                elif stat.S_ISREG(kind):
                    self._bring(name, fd, here / name)
                else:
                    raise ModelError("The version holds what is neither a file nor a folder.")
        self._go_on()

    def _go_on(self) -> None:
        """Raises :class:`InterruptedError` once it is stopped."""
        if self._is_stopped():
            raise InterruptedError

    def _lead(self, name: str, folder_fd: int, here: Path) -> None:
        """A link, to where the same thing lies in the layout."""
        fd = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=folder_fd)
        try:
            target = _path_of(fd)
        finally:
            os.close(fd)
        if not target.is_relative_to(self._home):
            raise ModelError("A link in the version's folder leads out of it.")
        laid = self._place / target.relative_to(self._home)
        (here / name).symlink_to(os.path.relpath(laid, here))
        self.ways["link within"] += 1

    def _bring(self, name: str, folder_fd: int, to: Path) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
        try:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                raise ModelError("The version's files change while they are read.")
            self.ways[self._put(fd, facts, to)] += 1
        finally:
            os.close(fd)

    def _put(self, fd: int, facts: os.stat_result, to: Path) -> str:
        """How it came: cloned and copied files are the worker's own, a linked one is the file itself."""
        out = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(out, 0o644)
            if _is_cloned(fd, out):
                return "cloned"
            if self._may_link(facts) and _is_linked(fd, to):
                return "linked"
            self._copy(fd, facts.st_size, out)
            return "copied"
        finally:
            os.close(out)

    def _may_link(self, facts: os.stat_result) -> bool:
        """Whether only this user can write the file, and the runner can read it."""
        is_ours_alone = facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
        return is_ours_alone and facts.st_mode & self._readable == self._readable

    def _copy(self, fd: int, size: int, out: int) -> None:
        disk = os.fstatvfs(out)
        if disk.f_bavail * disk.f_frsize < size + _SPARE_BYTES:
            raise _cannot("no space left")
        at = 0
        while sent := os.sendfile(out, fd, at, _CHUNK_BYTES):
            at += sent
            self._go_on()


def _is_cloned(fd: int, out: int) -> bool:
    try:
        fcntl.ioctl(out, _FICLONE, fd)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
        return False
    return True


def _is_linked(fd: int, to: Path) -> bool:
    """The very file that is open as ``fd`` takes the place of ``to``."""
    draft = to.with_name(secrets.token_hex(16))
    try:
        # With a descriptor, which an absolute path makes meaningless, Python's call is linkat, which follows.
        os.link(f"/proc/self/fd/{fd}", draft, src_dir_fd=fd, follow_symlinks=True)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    draft.rename(to)
    return True


def _make_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)  # whatever the umask; who may come here the folder above decides


def _path_of(fd: int) -> Path:
    """Where it really is."""
    return Path(f"/proc/self/fd/{fd}").readlink()


def _cannot(why: str | None) -> Unavailable:
    return Unavailable(
        f"The worker cannot lay the version out for its load: {why}. SIGNALBOX_WORKER_STAGING_DIR names the folder:"
        " make room there, or choose one on the file system of the models."
    )


def _raise(error: OSError) -> None:
    raise error
