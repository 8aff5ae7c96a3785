"""This machine's configuration of pip, for builds: as secrets of the build, which are in no layer."""

import subprocess
import sys
from pathlib import Path
from typing import Final

CONF: Final = "pip_conf"
CA: Final = "pip_ca"
"""Identifiers of the secrets in deploy/Dockerfile."""
_LOCAL: Final = frozenset(
    {"cert", "client-cert", "cache-dir", "find-links", "log", "require-virtualenv", "target", "user"}
)
"""Options that name files of this machine, or are of its environments alone."""


def secrets(folder: Path) -> list[str]:
    """Options of ``buildah build``. The files they name are in ``folder``."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    options = dict(_option(line) for line in told.splitlines() if "=" in line)
    certificate = Path(options.get("cert", ""))
    kept = {name: value for name, value in options.items() if name not in _LOCAL}
    found: list[str] = []
    if certificate.is_file():
        kept["cert"] = f"/run/secrets/{CA}"
        found += ["--secret", f"id={CA},src={certificate}"]
    if kept:
        conf = folder / CONF
        conf.touch(mode=0o600)
        conf.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in kept.items()), encoding="utf-8")
        found += ["--secret", f"id={CONF},src={conf}"]
    return found


def _option(line: str) -> tuple[str, str]:
    """Name and value of ``section.name='value'``; variables stand in the section ``:env:``."""
    name, _, value = line.partition("=")
    return name.rpartition(".")[2], value[1:-1].replace("\\n", "\n  ")
