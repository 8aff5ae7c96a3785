"""Rules for the machine the doctor runs on, and for a folder of secrets."""

import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from signalbox.ops.doctor.catalog import Finding
from signalbox.ops.doctor.environment import is_open_to_others

_GPU_TIMEOUT_S: Final = 10.0


def examine_process() -> Iterator[Finding]:
    """What holds for any program started the way this one was."""
    if os.geteuid() == 0:
        yield Finding("host.root", "this process", "runs as root")
    if resource.getrlimit(resource.RLIMIT_CORE)[0] != 0:
        yield Finding("host.core_dumps", "this process", "core dumps are allowed")


def examine_gpus(program: str = "nvidia-smi") -> Iterator[Finding]:
    """Compute mode of each NVIDIA GPU; nothing where there is none, or no answer in time (drivers can hang)."""
    found = shutil.which(program)
    if found is None:
        return
    try:
        reported = subprocess.run(
            [found, "--query-gpu=uuid,compute_mode", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_GPU_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in reported.stdout.splitlines():
        uuid, _, mode = (part.strip() for part in line.partition(","))
        if reported.returncode == 0 and mode and mode.lower() not in {"exclusive_process", "[n/a]"}:
            yield Finding("host.gpu_shared", uuid, f"compute mode {mode}")


def examine_secrets(folder: Path) -> Iterator[Finding]:
    """Files of a folder of secrets that others can read."""
    try:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
    except OSError as error:
        yield Finding("file.unreadable", str(folder), str(error.strerror))
        return
    for path in paths:
        if is_open_to_others(path):
            mode = stat.S_IMODE(path.stat().st_mode)
            yield Finding("secret.file_open", str(path), f"mode {mode:o}, folder open too")
