"""A wheel of the sources as they are."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("signalbox", "gateway_plugin", "workers", "console")
_CACHES: Final = shutil.ignore_patterns("__pycache__", ".*cache")


def build(folder: Path) -> Path:
    """Build it into ``folder``, from a copy: a build leaves folders behind. Returns the wheel's file."""
    source = folder / "source"
    for name in (*PACKAGES, "tyk"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=_CACHES)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    into = folder / "wheel"
    command = ("-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into))
    done = subprocess.run(
        [sys.executable, *command], cwd=source, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = into.glob("*.whl")
    return made
