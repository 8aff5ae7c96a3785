"""Environments for published clients: one for each ``<name>.lock`` beside this file, made once and kept.

The clients' dependencies exclude each other's and ours: Triton's client and KServe's want protobuf 6, and the lock of
our own environment has 7, which TensorFlow Serving's stubs take as well. An environment is a folder outside the
checkout, named by the hash of its lock file, so that all checkouts with the same lock share it.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

LOCKS: Final = Path(__file__).parent
INSTALL_S: Final = 480.0
"""Longest installation, in seconds: below the time that one test has."""


class Environment(NamedTuple):
    """python: its interpreter, None where its packages cannot be had. missing: why, in pip's words."""

    python: Path | None
    missing: str = ""


@functools.cache
def environment(name: str) -> Environment:
    """The environment of ``<name>.lock``, made if it is not there yet.

    Safe when several processes make it at once: one does and the others wait. Raises AssertionError where a package
    is not the one that the lock file names.
    """
    lock = LOCKS / f"{name}.lock"
    tag = f"{sys.implementation.cache_tag} {sys.platform} {os.uname().machine}"
    digest = hashlib.sha256(lock.read_bytes() + tag.encode()).hexdigest()[:16]
    made = cache() / f"{name}-{digest}"
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".making").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        missing = "" if made.exists() else _make(lock, made)
    return Environment(None, missing) if missing else Environment(made / "bin" / "python")


def cache() -> Path:
    """The folder of all environments. It may be deleted whenever no test runs."""
    above = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(above) / "signalbox-clients"


def _make(lock: Path, made: Path) -> str:
    """Why it could not be made; empty when it was. What was begun and not ended is begun again."""
    draft = made.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(draft)], check=True, timeout=INSTALL_S)
    # Not compiled: the draft's own path would be in every traceback. The first import compiles.
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--no-compile"]
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(draft / "bin" / "python"), "install", *options, "-r", str(lock)],
        check=False,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )
    if installed.returncode:
        shutil.rmtree(draft)
        assert "DO NOT MATCH THE HASHES" not in installed.stderr, installed.stderr
        said = [line for line in installed.stderr.splitlines() if line.startswith("ERROR")]
        return said[0] if said else f"pip ended with {installed.returncode}"
    draft.rename(made)  # an environment's interpreter finds its packages beside itself, wherever that is
    return ""


def main() -> int:
    """Make all of them. 0 when all were made."""
    missing = {lock.stem: environment(lock.stem).missing for lock in sorted(LOCKS.glob("*.lock"))}
    for name, why in missing.items():
        if why:
            print(f"the tests of the client {name} will be skipped: {why}")
    return 1 if any(missing.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
