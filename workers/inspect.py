"""``python -m workers.inspect PATH``: what a SavedModel directory holds, as JSON on stdout.

``--rules`` in the place of a path: the digest of what operations are judged by. ``--graphs FOLDER``: what each
``saved_model.pb`` in a folder below FOLDER says by itself, and the ``config.pbtxt`` beside it, one line of JSON each,
in one process. ``--serving FOLDER``: what TensorFlow Serving's configuration in FOLDER says
(:mod:`workers.runner.servingconfig`).

Meant to be run as a process that is thrown away: a model is a foreign file. Nothing of it is
executed, the process is confined as a runner is, and reading stops at limits on memory and processor time.
"""

import argparse
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from signalbox.program.errors import SignalboxError
from workers.runner import operations, savedmodel, servingconfig, tritonconfig
from workers.sandbox.confine import confine, tidy
from workers.sandbox.confinement import Sandbox

T = TypeVar("T")
_MEMORY_BYTES: Final = 8 << 30
_CPU_S: Final = 120
_GRAPH_S: Final = 10.0
"""Longest that one graph of many may take."""
_MOST_LINE_BYTES: Final = 1 << 20
"""Of what is said of one graph: more does not fit into a model's document."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.inspect",
        description="Print signatures, kinds of operations, size and digest of a SavedModel directory as JSON.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("path", type=Path, nargs="?", help="directory that holds saved_model.pb")
    what.add_argument("--rules", action="store_true", help="the digest of what judges operations")
    what.add_argument("--graphs", type=Path, metavar="FOLDER", help="folder of folders with a saved_model.pb each")
    what.add_argument("--serving", type=Path, metavar="FOLDER", help="folder with TensorFlow Serving's models.config")
    asked = parser.parse_args()
    if asked.rules:
        sys.stdout.write(f"{operations.rules()}\n")
        return 0
    if asked.graphs:
        status = _inspect_graphs(asked.graphs.resolve())
        tidy(Sandbox())
        return status
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        tidy(Sandbox())
        return os.waitstatus_to_exitcode(status)
    given = (asked.serving, servingconfig.inspect_serving) if asked.serving else (asked.path, savedmodel.inspect)
    status = _inspect(*given)
    sys.stdout.flush()
    os._exit(status)


def _inspect(path: Path, read: Callable[[Path], object]) -> int:
    """Print what is there; the exit status. The process is confined from then on, and can do nothing else."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    try:
        path = path.resolve()
        confine(Sandbox(model_folders=(str(path),)), "cpu")
        found = read(path)
    except (SignalboxError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    return 0


def _inspect_graphs(folder: Path) -> int:
    """Print a line for each graph below ``folder``; the exit status, 1 where the inspector itself does not run.

    A graph that ends the confined process, or takes too long, gets a line that says so; another process does the rest.
    """
    left = sorted(path.parent.name for path in folder.glob(f"*/{savedmodel.FILE}"))
    while left:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            os._exit(_say_graphs(folder, left, writer))
        os.close(writer)
        said = 0
        for line in _lines(reader):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            said += 1
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            return 1
        left = left[said:]
        if left:
            lost = savedmodel.GraphFindings(name=left.pop(0), error="Reading it took too long, or too much memory.")
            sys.stdout.buffer.write(msgspec.json.encode(lost) + b"\n")
    return 0


def _lines(reader: int) -> Iterator[bytes]:
    """Whole lines, until there is an end of them, or none for as long as a graph may take."""
    rest = b""
    while select.select([reader], [], [], _GRAPH_S)[0] and (data := os.read(reader, 1 << 16)):
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)


def _say_graphs(folder: Path, names: Sequence[str], writer: int) -> int:
    """Write a line for each graph; the exit status. The process is confined from then on."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    try:
        confine(Sandbox(model_folders=(str(folder),)), "cpu")
    except (SignalboxError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    with os.fdopen(writer, "wb") as sink:
        for name in names:
            line = msgspec.json.encode(_findings(folder, name))
            if len(line) > _MOST_LINE_BYTES:
                said = f"What its graph names takes more than {_MOST_LINE_BYTES} bytes."
                line = msgspec.json.encode(savedmodel.GraphFindings(name=name, error=said))
            sink.write(line + b"\n")
            sink.flush()
    return 0


def _findings(folder: Path, name: str) -> savedmodel.GraphFindings:
    found, error = _tried(lambda: savedmodel.inspect_graph(folder / name, name))
    config, config_error = _tried(lambda: tritonconfig.inspect_config(folder / name))
    found = found or savedmodel.GraphFindings(name=name, error=error)
    return msgspec.structs.replace(found, config=config, config_error=config_error)


def _tried(read: Callable[[], T]) -> tuple[T | None, str]:
    """What ``read`` returns, and why it does not."""
    try:
        return read(), ""
    except SignalboxError as error:
        return None, error.public_message
    except MemoryError:
        return None, "Reading it took too much memory."
    except Exception as error:  # noqa: BLE001  the edge of one file: it must not end the others
        return None, f"It cannot be read: {type(error).__name__}."


if __name__ == "__main__":
    sys.exit(main())
