"""Landlock: what of the file system a process may touch, as a list of paths, by system call.

Whatever the kernel knows to restrict is restricted, and the list gives back. Found by asking the
kernel for its version, never by looking for files. Source: Linux' Documentation/userspace-api/landlock.rst.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
READ: Final = READ_FILE | READ_DIR
_CHANGE: Final = 0x1FF0 | WRITE_FILE
"""Write files; make and remove files, folders, sockets, pipes, links and devices."""
_REFER: Final = 1 << 13
FILE_RIGHTS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_NET_TCP: Final = 0b11
_SCOPES: Final = 0b11
"""Neither signals to, nor abstract Unix sockets of, processes outside."""


class PathGrant(NamedTuple):
    """A right on everything below a path, or on the one file it is."""

    path: Path
    rights: int


def abi() -> int:
    """Version of Landlock in this kernel; 0 where there is none or it is switched off."""
    return max(0, _call(_CREATE, None, 0, _VERSION_FLAG))


def everything(version: int) -> int:
    """Every file right a kernel of ``version`` can withhold."""
    rights = EXECUTE | READ | _CHANGE
    rights |= _REFER if version >= 2 else 0
    rights |= TRUNCATE if version >= 3 else 0
    return rights | (IOCTL_DEV if version >= 5 else 0)


def ruleset(grants: Iterable[PathGrant], *, withheld: int, version: int) -> int:
    """Descriptor of a ruleset that withholds ``withheld`` everywhere but where ``grants`` say.

    Also withheld where the kernel can: TCP, signals and abstract sockets across the border. A path
    that does not exist is left out; any other error raises :class:`OSError`, so that a ruleset is
    never silently less than what was asked.
    """
    attributes = struct.pack("=Q", withheld)
    if version >= 4:
        attributes += struct.pack("=Q", _NET_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    fd = _checked(_CREATE, attributes, len(attributes), 0)
    for grant in grants:
        try:
            there = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        with _closing(there):
            is_folder = stat.S_ISDIR(os.fstat(there).st_mode)
            rights = grant.rights & withheld & (~0 if is_folder else FILE_RIGHTS)
            if rights:
                rule = struct.pack("=Qi", rights, there)
                _checked(_ADD_RULE, fd, _PATH_BENEATH, rule, 0)
    return fd


def restrict(fd: int) -> None:
    """Put the calling thread, and what it will start, under the ruleset, for good; closes ``fd``."""
    with _closing(fd):
        _checked(_RESTRICT_SELF, fd, 0)


@contextmanager
def _closing(fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(fd)


def _call(number: int, *arguments: int | bytes | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    given = [ctypes.c_long(x) if isinstance(x, int) else x for x in arguments]
    return int(libc.syscall(ctypes.c_long(number), *given))


def _checked(number: int, *arguments: int | bytes | None) -> int:
    result = _call(number, *arguments)
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"landlock: {os.strerror(errno)}")
    return result
