"""Chooses ports of this machine for programs that need a port before they start and keep it across restarts.

A port that the system chose is free again once it is closed: the system may give it to another program or to an
outgoing connection. Ours are chosen below the system's range. While this process runs, no other caller of this module
gets the same port: the process holds a lock on a byte of a file that all processes of a user share.
"""

import fcntl
import os
import secrets
import socket
import tempfile
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

from signalbox.program.errors import Misconfigured

HOST: Final = "127.0.0.1"
_LOWEST: Final = 10_000
_HIGHEST: Final = 32_767
"""The last below what Linux gives by itself."""
_given: Final[set[int]] = set()


def free_port() -> int:
    """Reserve a port that no program listens on. Raises :class:`Misconfigured` when there is none."""
    candidates = range(_LOWEST, min(_HIGHEST + 1, _first_of_the_system()))
    start = secrets.randbelow(len(candidates))
    for port in chain(candidates[start:], candidates[:start]):
        if port not in _given and _is_free(port) and _lock(port):
            _given.add(port)
            return port
    raise Misconfigured(f"No port from {_LOWEST} to {_HIGHEST} is free below net.ipv4.ip_local_port_range; free some.")


def choose_port(wanted: int | None, usual: int, what: str) -> int:
    """The port to use on this machine: the one asked for, else the usual one, else any free one.

    wanted: 0 = any free one, None = not configured. Raises :class:`Misconfigured` naming ``what`` when
    the port asked for is taken.
    """
    if wanted:
        if not _is_free(wanted):
            raise Misconfigured(
                f"Port {wanted}, asked for as {what}, is taken by another program. "
                "Give another one, or none to have a free one chosen."
            )
        return wanted
    # Locked, as two programs that start at the same moment both find it free.
    return usual if wanted is None and _is_free(usual) and _lock(usual) else free_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _locks() -> int:
    """The shared file. Open for good: its first close would give all our locks up."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = Path(folder) / f"signalbox-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _first_of_the_system() -> int:
    """The first port that the system gives by itself."""
    try:
        first = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0]
    except OSError:
        return _HIGHEST + 1
    # Where that is nearly all there is, nothing below is left to choose from.
    return int(first) if int(first) > _LOWEST else _HIGHEST + 1
