"""The last steps into a container: mounts, host name, root folder, user. Run as a file, with nothing but Python.

``unshare --mount --uts --propagation private python -IS container.py SPEC`` ends in an exec, so the process id stays
that of the program. SPEC is the JSON that :mod:`verification.production.images` makes.
"""

import ctypes
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any, Final

_BIND: Final = 4096
_REMOUNT: Final = 32
_READ_ONLY: Final = 1
_NOSUID: Final = 2
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")
_ETC: Final = (
    *("alternatives", "ssl", "localtime", "host.conf", "nsswitch.conf", "mime.types"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "protocols", "services"),
)
"""What every image has of it; the rest is the container's own, or a mount."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def main(path: str) -> None:
    """Become the program that ``path`` describes. Returns never."""
    spec: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    os.umask(0o022)  # folders made for mounts are for the service's user too
    root = Path(spec["root"])
    _mount("tmpfs", root, kind="tmpfs", options="mode=0755,size=16m")
    _system(root)
    for source, target, is_read_only in spec["mounts"]:
        _bind(Path(source), root / target.lstrip("/"), is_read_only=is_read_only)
    for folder, owner, group in spec["folders"]:
        made = root / folder.lstrip("/")
        made.mkdir(parents=True, exist_ok=True)
        os.chown(made, owner, group)
    if spec["is_read_only"]:
        _mount("none", root, flags=_BIND | _REMOUNT | _READ_ONLY)
    socket.sethostname(spec["hostname"])
    os.chroot(root)
    os.chdir(spec["workdir"])
    os.execv(spec["enter"][0], spec["enter"])


def _system(root: Path) -> None:
    """What an image has of its distribution: programs and libraries of this machine, read only."""
    for name in _SYSTEM:
        here, there = Path("/", name), root / name
        if here.is_symlink():
            there.symlink_to(here.readlink())
        elif here.is_dir():
            _bind(here, there, is_read_only=True)
    for name in _ETC:
        if Path("/etc", name).exists():
            _bind(Path("/etc", name), root / "etc" / name, is_read_only=True)
    for name in ("proc", "sys", "dev", "run", "var"):
        (root / name).mkdir()
    (root / "var" / "run").symlink_to("/run")
    _mount("proc", root / "proc", kind="proc")
    _mount("sysfs", root / "sys", kind="sysfs", flags=_READ_ONLY)  # of this network namespace
    _mount("tmpfs", root / "dev", kind="tmpfs", flags=_NOSUID, options="mode=0755,size=64k")
    for name in _DEVICES:
        _bind(Path("/dev", name), root / "dev" / name, is_read_only=False)
    (root / "dev" / "fd").symlink_to("/proc/self/fd")
    (root / "dev" / "shm").mkdir()
    _mount("tmpfs", root / "dev" / "shm", kind="tmpfs", options="mode=1777,size=64m")


def _bind(source: Path, target: Path, *, is_read_only: bool) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(str(source), target, flags=_BIND)
    if is_read_only:
        _mount("none", target, flags=_BIND | _REMOUNT | _READ_ONLY)


def _mount(source: str, target: Path, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    if _libc.mount(source.encode(), bytes(target), kind.encode(), flags, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, f"mount of {source}: {os.strerror(number)}", str(target))


if __name__ == "__main__":
    main(sys.argv[1])
