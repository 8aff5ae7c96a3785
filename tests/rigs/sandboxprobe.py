"""Confines itself as a runner does, then tries what a hostile model would try; prints JSON.

``python -m tests.rigs.sandboxprobe KIND SANDBOX_JSON ATTEMPT...``: one result an attempt, ``"done"`` or the
name of the error number it failed with. Attempts are the functions below.
"""

import ctypes
import errno
import fcntl
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from workers.sandbox.confine import confine
from workers.sandbox.confinement import Sandbox

libc = ctypes.CDLL(None, use_errno=True)


def read(path: str) -> None:
    """A file."""
    Path(path).read_bytes()


def listing(path: str) -> None:
    """A folder."""
    os.listdir(path)  # noqa: PTH208


def write(path: str) -> None:
    """A new file."""
    Path(path).write_bytes(b"x")


def change(path: str) -> None:
    """Rights of a file that is there."""
    Path(path).chmod(0o666)


def cut(path: str) -> None:
    """The content of a file that is there."""
    os.truncate(path, 0)


def remove(path: str) -> None:
    """A file that is there."""
    Path(path).unlink()


def link(path: str) -> None:
    """A link in the private folder to a file outside, then read through it."""
    Path("way-out").symlink_to(path)
    Path("way-out").read_bytes()


def private(name: str) -> None:
    """A file in the private folder."""
    Path(name).write_bytes(b"x")
    Path(name).unlink()


def large(name: str) -> None:
    """More than the private folder holds."""
    with Path(name).open("wb") as file:
        file.writelines(bytes(1 << 20) for _ in range(300))


def internet(family: str) -> None:
    """A socket."""
    socket.socket(getattr(socket, family), socket.SOCK_STREAM)


def unix(path: str) -> None:
    """Another program's Unix socket."""
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(path)


def signal_to(pid: str) -> None:
    """Another process."""
    os.kill(int(pid), 0)


def memory_of(pid: str) -> None:
    """Another process' memory and environment."""
    Path(f"/proc/{pid}/environ").read_bytes()


def program(path: str) -> None:
    """Another program."""
    os.posix_spawn(path, [path], {})


def child(_: str) -> None:
    """A second process."""
    if os.fork() == 0:
        os._exit(0)


def thread(_: str) -> None:
    """Threads work."""
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


def core(_: str) -> None:
    """Limits do not go up again."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))


def call(words: str) -> None:
    """A system call by its number and arguments."""
    number, *given = (int(word, 0) for word in words.split(","))
    if libc.syscall(number, *given) < 0:
        raise OSError(ctypes.get_errno(), "call")


def unlock(fd: str) -> None:
    """A flock that is shared with somebody."""
    fcntl.flock(int(fd), fcntl.LOCK_UN)


def weaken(fd: str) -> None:
    """The same, through a copy: to share it is to let go of it for a moment."""
    fcntl.flock(os.dup(int(fd)), fcntl.LOCK_SH)


def overwrite(fd: str) -> None:
    """An open file."""
    os.pwrite(int(fd), b"x", 0)


def empty(fd: str) -> None:
    """An open file."""
    os.ftruncate(int(fd), 0)


def reopen(fd: str) -> None:
    """An open file, for writing."""
    os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)


def orphan(_: str) -> None:
    """No signal at the end of its parent any more."""
    if libc.prctl(1, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


ATTEMPTS: dict[str, Callable[[str], None]] = {
    each.__name__: each
    for each in (
        read,
        listing,
        write,
        change,
        cut,
        remove,
        link,
        private,
        large,
        internet,
        unix,
        signal_to,
        memory_of,
        program,
        child,
        thread,
        core,
        call,
        unlock,
        weaken,
        overwrite,
        empty,
        reopen,
        orphan,
    )
}


def attempt(words: str) -> str:
    """``done``, or why not."""
    name, _, argument = words.partition("=")
    try:
        ATTEMPTS[name](argument)
    except (OSError, ValueError) as error:
        return errno.errorcode.get(getattr(error, "errno", 0) or 0, type(error).__name__)
    return "done"


if __name__ == "__main__":
    confinement = confine(Sandbox.of_argument(sys.argv[2]), sys.argv[1])
    facts = {
        "active": confinement.active,
        "missing": confinement.missing,
        "uid": os.geteuid(),
        "groups": os.getgroups(),
        "results": [attempt(words) for words in sys.argv[3:]],
    }
    sys.stdout.write(json.dumps(facts) + "\n")
