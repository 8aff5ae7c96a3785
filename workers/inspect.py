"""``python -m workers.inspect PATH``: what a SavedModel directory holds, as JSON on stdout.

``--rules`` in the place of a path: the digest of what operations are judged by.

Meant to be run as a process that is thrown away: a model is a foreign file. Nothing of it is
executed, the process is confined as a runner is, and reading stops at limits on memory and processor time.
"""

import argparse
import os
import resource
import sys
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import SignalboxError
from workers.runner import operations, savedmodel
from workers.sandbox.confine import confine, tidy
from workers.sandbox.confinement import Sandbox

_MEMORY_BYTES: Final = 8 << 30
_CPU_S: Final = 120


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.inspect",
        description="Print signatures, kinds of operations, size and digest of a SavedModel directory as JSON.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("path", type=Path, nargs="?", help="directory that holds saved_model.pb")
    what.add_argument("--rules", action="store_true", help="the digest of what judges operations")
    asked = parser.parse_args()
    if asked.rules:
        sys.stdout.write(f"{operations.rules()}\n")
        return 0
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        tidy(Sandbox())
        return os.waitstatus_to_exitcode(status)
    status = _inspect(asked.path)
    sys.stdout.flush()
    os._exit(status)


def _inspect(path: Path) -> int:
    """Print what is there; the exit status. The process is confined from then on, and can do nothing else."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    try:
        path = path.resolve()
        confine(Sandbox(model_folders=(str(path),)), "cpu")
        found = savedmodel.inspect(path)
    except (SignalboxError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
