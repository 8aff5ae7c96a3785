"""The self-test of a confined runner: each layer that is said to be in force must refuse something.

It does not trust that a call which succeeded had an effect: a file that could be read must not be
readable any more, a socket must not be made, other processes must be out of reach.
"""

import ctypes
import errno
import fcntl
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from workers.sandbox import privileges

_CANARIES: Final = ("/etc/hostname", "/etc/hosts", "/etc/passwd", "/etc/fstab", "/etc/shadow")
"""Files of every machine that no runner needs; first those that any user may read."""
_NO_SUCH_REQUEST: Final = 0x7FFF
_PR_SET_PDEATHSIG: Final = 1
_NO_SUCH_SIGNAL: Final = 1 << 20


class Layer(StrEnum):
    """What a sandbox is made of; docs/sandbox.md says what each one prevents."""

    PARENT = "ends with its parent"
    RIGHTS = "no privileges"
    USER = "own user"
    ENVIRONMENT = "no secrets in its environment"
    LIMITS = "limits"
    NETWORK = "network of its own"
    MEMORY = "private files in memory"
    READS = "reads restricted"
    WRITES = "writes restricted"
    CALLS = "system calls restricted"


class Before(NamedTuple):
    """What could be done before. canary: a file that could be read, empty where there is none."""

    canary: str
    network: str
    uid: int
    folder: Path

    @staticmethod
    def read() -> "Before":
        """Now, while everything is still allowed."""
        canary = next((path for path in _CANARIES if _can_read(path)), "")
        folder = Path(os.getenv("PWD", "/"))
        return Before(canary, privileges.network(), os.geteuid(), folder)


def broken(before: Before, claimed: frozenset[Layer], kind: str) -> dict[Layer, str]:
    """Return the claimed layers that do not hold, each with what was possible all the same."""
    found: dict[Layer, str] = {}
    for layer, trial in _TRIALS.items():
        if layer in claimed and (said := trial(before, kind)):
            found[layer] = said
    return found


def _parent(before: Before, kind: str) -> str:
    return "" if privileges.is_dying_with_parent() else "the parent-death signal is not armed"


def _rights(before: Before, kind: str) -> str:
    if not privileges.has_no_new_privileges():
        return "new privileges can be had"
    return "capabilities are left" if privileges.capabilities() else ""


def _user(before: Before, kind: str) -> str:
    is_other = os.geteuid() not in {0, before.uid} and os.geteuid() == os.getuid()
    with suppress(OSError):
        os.setuid(before.uid)
        return "it could become the worker's user again"
    return "" if is_other else "it is still the worker's user"


def _environment(before: Before, kind: str) -> str:
    names = sorted(name for name in os.environ if name.startswith("SIGNALBOX_"))
    return f"{', '.join(names)} is set" if names else ""


def _limits(before: Before, kind: str) -> str:
    above = [kind for kind, most in privileges.LIMITS.items() if resource.getrlimit(kind)[1] > most]
    return "a limit is not in force" if above else ""


def _network(before: Before, kind: str) -> str:
    return "the network is the machine's" if privileges.network() == before.network else ""


def _reads(before: Before, kind: str) -> str:
    if not before.canary:
        return "no file was found to try it with"
    return f"{before.canary} can be read" if _can_read(before.canary) else ""


def _writes(before: Before, kind: str) -> str:
    shared = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  tried, not used
    for folder in {*shared, str(before.folder), str(Path(__file__).parents[1])}:
        path = f"{folder}/.signalbox-selftest-{os.getpid()}"
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.unlink(path)  # noqa: PTH108
            return f"{folder} can be written to"
    probe = Path.cwd() / ".selftest"
    try:
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        return f"the private folder cannot be written to: {error.strerror}"
    return ""


def _calls(before: Before, kind: str) -> str:
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET):
        with suppress(OSError):
            socket.socket(family, socket.SOCK_DGRAM).close()
            return f"a socket of family {family.name} can be made"
    libc = ctypes.CDLL(None, use_errno=True)
    # Requests that fail in any case: only the filter's answer is EPERM, the kernel's own is another.
    if libc.ptrace(_NO_SUCH_REQUEST, 0, 0, 0) != -1 or ctypes.get_errno() != errno.EPERM:
        return "ptrace can be called"
    if libc.process_vm_readv(1 << 30, None, 0, None, 0, 0) != -1 or (ctypes.get_errno() != errno.EPERM):
        return "process_vm_readv can be called"
    if libc.flock(-1, fcntl.LOCK_UN) != -1 or ctypes.get_errno() != errno.EPERM:
        return "flock can be called"
    if libc.prctl(_PR_SET_PDEATHSIG, _NO_SUCH_SIGNAL, 0, 0, 0) != -1 or (ctypes.get_errno() != errno.EPERM):
        return "the parent-death signal can be disarmed"
    with suppress(PermissionError):
        os.kill(os.getppid(), 0)
        return "its parent can be sent signals"
    if kind == "cpu":
        with suppress(PermissionError):
            if os.fork() == 0:
                os._exit(0)
            os.wait()
            return "a process can be started"
    return ""


def _can_read(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(fd)
    return True


_TRIALS: Final[dict[Layer, Callable[[Before, str], str]]] = {
    Layer.PARENT: _parent,
    Layer.RIGHTS: _rights,
    Layer.USER: _user,
    Layer.ENVIRONMENT: _environment,
    Layer.LIMITS: _limits,
    Layer.NETWORK: _network,
    Layer.READS: _reads,
    Layer.WRITES: _writes,
    Layer.CALLS: _calls,
}
