"""Gives up rights of a process: its user, capabilities, network and limits; arms the parent-death signal.

Only for a process with one thread: these calls change the calling thread.
"""

import ctypes
import os
import pwd
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.program.errors import Misconfigured

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 0x4000, 1 << 19
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 2, 4
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 24, 38, 39
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_LAST_CAPABILITY: Final = 63
LIMITS: Final = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_FSIZE: 1 << 30}
"""Highest values of a runner. No limit on address space: CUDA maps huge ranges it never uses."""
THREADS: Final = 4096
"""Processes and threads of a user that only runners have."""


class SystemUser(NamedTuple):
    """The user that a runner becomes. groups: supplementary ones, those of the device only."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def find_user(name: str, devices: Sequence[Path]) -> SystemUser:
    """The user called ``name`` (or with that number). Raises :class:`Misconfigured`."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError as error:
        raise Misconfigured(f"SIGNALBOX_WORKER_RUNNER_USER: there is no user {name!r}.") from error
    if entry.pw_uid == 0:
        raise Misconfigured("SIGNALBOX_WORKER_RUNNER_USER must not be root.")
    groups = {path.stat().st_gid for path in devices} - {0, entry.pw_gid}
    return SystemUser(entry.pw_uid, entry.pw_gid, tuple(sorted(groups)))


def become(user: SystemUser) -> None:
    """Become ``user`` for good. Clears the parent-death signal, as every change of user does."""
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def limit(*, is_own_user: bool) -> None:
    """Lower the limits to :data:`LIMITS`, and the number of threads where the user is the runners' own."""
    wanted = LIMITS | ({resource.RLIMIT_NPROC: THREADS} if is_own_user else {})
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (lower, lower))


def isolate(*, may_be_user: bool) -> str:
    """Enter a network and a mount namespace of its own: there is nothing to connect to. Returns why not, or nothing.

    Without the privilege, and if ``may_be_user``, it is tried inside a user namespace, in which the process
    keeps its user's number (and cannot become another user).
    """
    uid, gid = os.geteuid(), os.getegid()
    number = _unshare(_CLONE_NEWNET | _CLONE_NEWNS)
    if number == 0:
        return ""
    if not may_be_user:
        return f"namespaces: {os.strerror(number)}"
    if number := _unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWNS):
        return f"namespaces: {os.strerror(number)}"
    with suppress(OSError):  # a kernel that allows the namespace may still refuse the names
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return ""


def mount_scratch(folder: Path, size_bytes: int, user: SystemUser | None) -> str:
    """Mount an empty file system in memory on ``folder``, seen by this process only. Returns why not, or nothing."""
    uid, gid = (user.uid, user.gid) if user else (os.geteuid(), os.getegid())
    options = f"size={size_bytes},mode=700,uid={uid},gid={gid}"
    libc = _libc()
    # From the machine to this process and never back: models mounted later must still appear.
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None) == 0:
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        if libc.mount(b"tmpfs", bytes(folder), b"tmpfs", flags, options.encode()) == 0:
            return ""
    return f"private file system: {os.strerror(ctypes.get_errno())}"


def drop_capabilities() -> None:
    """Give up all capabilities, so that none can come back."""
    libc = _libc()
    for number in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # those the kernel lacks are refused
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    libc.capset(header, bytes(24))


def no_new_privileges() -> None:
    """Keep programs that are started from here from gaining rights by their file."""
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def die_with_parent(*, is_dumpable: bool) -> None:
    """Have the kernel send SIGKILL at the end of the parent's thread; after every change of user, which clears it.

    is_dumpable: the process' own files in /proc belong to it again (CUDA names its threads there).
    """
    libc = _libc()
    if is_dumpable:
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def is_dying_with_parent() -> bool:
    """Whether the signal is armed."""
    number = ctypes.c_int(0)
    _libc().prctl(_PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    return number.value == int(signal.SIGKILL)


def has_no_new_privileges() -> bool:
    """Whether :func:`no_new_privileges` holds."""
    return int(_libc().prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) == 1


def capabilities() -> int:
    """The capabilities in effect or permitted, as bits."""
    found = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(("CapEff", "CapPrm"))
    )
    return int(found["CapEff"], 16) | int(found["CapPrm"], 16)


def network() -> str:
    """Name of the network namespace this process is in."""
    return str(Path("/proc/self/ns/net").readlink())


def _unshare(flags: int) -> int:
    return 0 if _libc().unshare(flags) == 0 else ctypes.get_errno()


def _libc() -> ctypes.CDLL:
    assert sys.platform == "linux"
    return ctypes.CDLL(None, use_errno=True)
