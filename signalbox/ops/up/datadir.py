"""The data folder of a stack: its lock, its secrets, its files, and whether the disk has room for it."""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from signalbox.program.errors import Misconfigured
from signalbox.program.heldfile import HeldFile

LEAST_FREE_BYTES: Final = 512 * 1024 * 1024
SECRET_BYTES: Final = 32
_PASSWORD_BYTES: Final = 12
"""A password that a person types; logins are throttled."""
_METERED: Final = ("gateway", "console", "controller", "projector", "outbound")
"""Programs that serve metrics, each on the port after the one before; then the workers in their order."""


class DataDir:
    """The folder one stack keeps everything in. Held by at most one running stack."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock = HeldFile(self.path / "lock")

    def __enter__(self) -> Self:
        """Make it ours.

        Raises :class:`Misconfigured` when it is held, unwritable or the disk full.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            is_ours = self._lock.take()
        except OSError as error:
            reason = error.strerror or "not possible"
            raise Misconfigured(f"Cannot use the data folder {self.path}: {reason}.") from error
        if not is_ours:
            raise Misconfigured(
                f"Another stack runs in {self.path} (pid {self._lock.holder()}). "
                "Stop it, or choose another folder with --data."
            )
        try:
            self._check_room()
        except Misconfigured:
            self._lock.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _check_room(self) -> None:
        free = shutil.disk_usage(self.path).free
        if free < LEAST_FREE_BYTES:
            raise Misconfigured(
                f"The disk under {self.path} has {free // 1024**2} MB free; Signalbox needs "
                f"{LEAST_FREE_BYTES // 1024**2} MB. Free some, or choose another folder with --data."
            )

    def secret(self, name: str, *, size_bytes: int = SECRET_BYTES) -> Path:
        """File of a secret that is made on the first start and kept, readable by us only."""
        path = self.path / "secrets" / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            write_private(path, secrets.token_urlsafe(size_bytes))
        return path

    def admin_password(self) -> Path:
        """File of the password of the console's first admin, which is made as :meth:`secret` makes one."""
        return self.secret("admin_password", size_bytes=_PASSWORD_BYTES)

    def write_json(self, name: str, doc: Mapping[str, Any]) -> Path:
        """Replace ``name`` with ``doc`` in one step, readable by us only."""
        path = self.path / name
        write_private(path, json.dumps(doc, indent=2) + "\n")
        return path

    def read_json(self, name: str) -> dict[str, Any]:
        """What :meth:`write_json` wrote last, or nothing."""
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 600 that readers see whole or not at all. Raises :class:`OSError` and leaves the former."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.touch(mode=0o600)
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def metrics_port(name: str) -> int:
    """Where a program of the stack serves metrics; 0 = nowhere. ``SIGNALBOX_METRICS_PORT`` is the first one's."""
    first = os.environ.get("SIGNALBOX_METRICS_PORT", "")
    if not first.isdecimal() or not int(first):
        return 0
    if name in _METERED:
        return int(first) + _METERED.index(name)
    number = name.removeprefix("worker-")
    return int(first) + len(_METERED) + int(number) - 1 if number.isdecimal() else 0
