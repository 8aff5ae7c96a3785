"""``python -m tests.rigs.lightworker``: the worker as it is, its runners :mod:`tests.rigs.lightrunner`."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import workers.device.guardedrunner
from signalbox.ops.up.child import Spec
from tests.rigs import lightrunner
from workers.main import main

PROGRAM: Final = "tests.rigs.lightworker"


def version(kind: str) -> Path:
    """The folder of a version that its runner runs as ``kind``: ``half`` or ``slow``."""
    path = Path(tempfile.gettempdir()) / f"signalbox-toys-{os.getuid()}" / kind / "1"
    path.mkdir(parents=True, exist_ok=True)
    if not (path / lightrunner.KIND).exists():
        draft = path / f"draft-{os.getpid()}"
        draft.write_text(kind)
        draft.rename(path / lightrunner.KIND)
    return path


def instead(spec: Spec) -> Spec:
    """This program where a stack starts a worker; other programs as they are."""
    return spec._replace(argv=(sys.executable, "-m", PROGRAM)) if spec.name.startswith("worker-") else spec


if __name__ == "__main__":
    workers.device.guardedrunner.RUNNER = "tests.rigs.lightrunner"
    sys.exit(main())
