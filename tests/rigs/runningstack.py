"""Reads the ``up.json`` of a running production stack: its addresses, secrets and processes."""

import json
from pathlib import Path
from typing import Any, Final

from signalbox.program.errors import Misconfigured
from signalbox.program.settings import Wire
from verification.production.stack import MODELS, MODELS_INSIDE

LARGEST_BYTES: Final = 1024 * 1024


class RunningStack:
    """What ``file`` tells. Raises :class:`Misconfigured` where it is no ``up.json`` of a production stack."""

    def __init__(self, file: Path) -> None:
        self._file = file
        if not {"nats_ca", "namespaces"} <= set(self.facts):
            raise Misconfigured(f"{file} is not the up.json of a production stack.")

    @property
    def facts(self) -> dict[str, Any]:
        """The file as it is now; process ids change."""
        if not self._file.is_file() or self._file.stat().st_size > LARGEST_BYTES:
            raise Misconfigured(f"There is no {self._file}; does the stack run?")
        found: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        return found

    @property
    def data(self) -> Path:
        """The stack's folder."""
        return Path(self.facts["data"])

    def secret(self, name: str) -> str:
        """One of its secrets."""
        return (self.data / "secrets" / name).read_text(encoding="utf-8").strip()

    def admin(self) -> Wire:
        """Settings that lead this machine to its NATS with every right."""
        facts = self.facts
        return Wire(
            nats_url=facts["nats"],
            nats_user="admin",
            nats_password=self.secret("nats_admin"),
            nats_ca_file=facts["nats_ca"],
        )

    def pids(self, stem: str = "") -> dict[str, int]:
        """Process ids by name, of the services whose names begin with ``stem``."""
        found: dict[str, int] = self.facts["processes"]
        return {name: pid for name, pid in found.items() if name.startswith(stem)}

    def models(self) -> tuple[Path, Path]:
        """The folder of models here, and its name for console and workers."""
        return self.data / "volumes" / MODELS, MODELS_INSIDE
