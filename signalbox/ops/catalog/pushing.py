"""``signalbox models push``: upload a SavedModel as a new version."""

import argparse
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from signalbox.ops import output
from signalbox.ops.answers import told
from signalbox.ops.catalog.answers import add_model, path_of
from signalbox.ops.http import Rest
from signalbox.program.errors import Misconfigured

_SAVED_MODEL: Final = "saved_model.pb"
_CHUNK: Final = 1024 * 1024
_EPILOG: Final = """Examples:

  signalbox models push digits exported/digits                      # a folder with saved_model.pb
  signalbox models push digits digits.tar.gz --number 7 --no-default
  tar c -C exported/digits . | signalbox models push digits -

A version with operations that need approval is kept and does not serve before another operator has approved it."""


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parser of the act."""
    one = acts.add_parser(
        "push",
        help="Upload a SavedModel as a new version of a model, or as a new model.",
        description=(
            "Upload a SavedModel: a folder, which is packed first, or an archive (tar, tar.gz, zip). It gets the next "
            "number. Callers get the newest version, unless another one was chosen for them."
        ),
        epilog=_EPILOG,
    )
    add_model(one, help="An existing one, or a new name.")
    one.add_argument("path", metavar="PATH", help="A folder or an archive; -: an archive on standard input.")
    one.add_argument("--number", type=int, metavar="N", help="Of the version (default: the next one).")
    one.add_argument("--description", default="", metavar="TEXT", help="Of a new model.")
    one.add_argument(
        "--rows-independent",
        action="store_true",
        help="Of a new model: requests of several callers may share a run, since no row's answer depends on another.",
    )
    one.add_argument(
        "--default",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Whether requests without a version get this one (default: as the model is set).",
    )
    one.set_defaults(catalog_act=_push)
    yield one


def _push(console: Rest, arguments: argparse.Namespace) -> int:
    fields = {"description": arguments.description, "rows_independent": str(arguments.rows_independent).lower()}
    if arguments.number is not None:
        fields["number"] = str(arguments.number)
    if arguments.default is not None:
        fields["is_default"] = str(arguments.default).lower()
    with (
        _archive(arguments.path) as (file, name, size),
        output.Progress(f"sending {name}", size, is_bytes=True) as progress,
    ):
        answer = console.upload(path_of(arguments.model, "versions"), fields, name, _Counted(file, progress))
    said = f"{arguments.model}: version {answer['number']} is added, {answer['size_bytes']} bytes."
    if answer["listed_ops"] and not answer["approved_by"]:
        asked = ", ".join(sorted(answer["listed_ops"]))
        said += f" It does not serve before another operator has approved its operations: {asked}."
    return told(answer, said, arguments)


@contextmanager
def _archive(path: str) -> Iterator[tuple[IO[bytes], str, int]]:
    """The archive to send, its name and its bytes. Raises :class:`Misconfigured` for what is none."""
    try:
        if Path(path).is_file():
            with Path(path).open("rb") as file:
                yield file, Path(path).name, Path(path).stat().st_size
            return
        with tempfile.TemporaryFile() as file:
            if path == "-":
                shutil.copyfileobj(sys.stdin.buffer, file, _CHUNK)
            else:
                _pack(Path(path), file)
            size = file.tell()
            file.seek(0)
            yield file, "archive" if path == "-" else f"{Path(path).resolve().name}.tar", size
    except OSError as error:
        raise Misconfigured(f"{path} cannot be sent: {error.strerror or error}.") from error


def _pack(folder: Path, file: IO[bytes]) -> None:
    if not (folder / _SAVED_MODEL).is_file():
        raise Misconfigured(f"{folder} has no {_SAVED_MODEL}: name the folder of one version, as TensorFlow saved it.")
    with (
        output.Progress(f"packing {folder}") as progress,
        tarfile.open(fileobj=file, mode="w", dereference=True) as archive,
    ):
        for path in sorted(folder.rglob("*")):
            archive.add(path, path.relative_to(folder), recursive=False)
            progress.advance()


class _Counted:
    """A file that counts what is read of it, as far as an HTTP client looks."""

    def __init__(self, file: IO[bytes], progress: output.Progress) -> None:
        self._file, self._progress = file, progress

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self._progress.advance(len(data))
        if not data:
            self._progress.say("the console looks into it")
        return data

    def fileno(self) -> int:
        """Of the file, whose size says how long the request is."""
        return self._file.fileno()
