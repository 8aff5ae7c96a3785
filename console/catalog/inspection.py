"""Inspects a SavedModel in a separate short-lived process. The console never loads one: a SavedModel is a program."""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from django.conf import settings

from signalbox.program.errors import DeadlineExceeded, InvalidRequest, Misconfigured
from signalbox.repositories.triton import TritonConfig
from signalbox.wire.modeldocs import Signature
from signalbox.wire.servingconfig import BATCHING, CONFIG, ServingConfig

_TAIL = 600
_NO_SIGNATURE = "The model has no signature; export it with at least one."
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s'\":;,]+/)+")


class Verdict(msgspec.Struct, frozen=True):
    """forbidden: kind of operation to why it needs approval by an operator. unknown: kinds that the list lacks."""

    forbidden: dict[str, str]
    unknown: list[str]


class Inspection(msgspec.Struct, frozen=True):
    """What the inspector writes. digest: sha256 over the files. rules: digest of the list that the verdict is by."""

    signatures: dict[str, Signature]
    size_bytes: int
    digest: str
    verdict: Verdict
    rules: str = ""

    @property
    def listed(self) -> dict[str, str]:
        """All that need approval, and why."""
        unknown = dict.fromkeys(self.verdict.unknown, "not on the list of known operations")
        return {**self.verdict.forbidden, **unknown}


class GraphInspection(msgspec.Struct, frozen=True):
    """What the inspector says of one ``saved_model.pb`` alone. restores: the graph has variables to restore.

    assets: files that it names, below ``assets``. error: why it is refused, empty where it is not. config: what the
    ``config.pbtxt`` beside it says, if there is one; config_error: why that is refused.
    """

    name: str
    signatures: dict[str, Signature]
    verdict: Verdict
    rules: str
    restores: bool
    assets: tuple[str, ...]
    error: str
    config: TritonConfig | None = None
    config_error: str = ""

    def whole(self, size_bytes: int) -> Inspection:
        """The version's inspection, whose bytes have no digest yet."""
        return Inspection(self.signatures, size_bytes, "", self.verdict, self.rules)


def inspect(path: Path) -> Inspection:
    """What the SavedModel in ``path`` offers.

    Raises :class:`InvalidRequest` if it is none, cannot be read, lacks files or changes, :class:`DeadlineExceeded`,
    :class:`Misconfigured` if the inspector itself does not run.
    """
    return _findings(_asked(str(path)))


def inspect_graphs(folder: Path) -> dict[str, GraphInspection]:
    """What each ``saved_model.pb`` in a folder below ``folder`` says, and the ``config.pbtxt`` beside it, by that
    folder's name, in one process.

    One that is refused says so in ``error`` and ends none of the others. Where the time is over, what has been read.
    Raises :class:`DeadlineExceeded` where that is nothing, :class:`Misconfigured` if the inspector does not run.
    """
    found = [_graph(line) for line in _asked("--graphs", str(folder), takes_part=True).splitlines()]
    return {one.name: one for one in found}


def inspect_serving(config: str, batching: str) -> ServingConfig:
    """What a configuration of TensorFlow Serving says. batching: of its batching parameters; empty = none are given.

    Raises :class:`InvalidRequest` with the file and the line, and as :func:`inspect`.
    """
    with tempfile.TemporaryDirectory(prefix="signalbox-serving-") as folder:
        (Path(folder) / CONFIG).write_text(config, encoding="utf-8")
        if batching:
            (Path(folder) / BATCHING).write_text(batching, encoding="utf-8")
        said = _asked("--serving", folder)
    try:
        return msgspec.json.decode(said, type=ServingConfig)
    except msgspec.MsgspecError as error:
        raise Misconfigured("The inspector's answer is not understood.") from error


def rules() -> str:
    """Digest of the list that versions are judged by now. Raises as :func:`inspect`."""
    return _asked("--rules").decode().strip()


def _asked(*arguments: str, takes_part: bool = False) -> bytes:
    """What the inspector writes. takes_part: where it takes too long, whatever whole lines there are, if any."""
    console = settings.CONSOLE
    given = shlex.split(console.inspect_command)
    command = [*(given or [sys.executable, "-m", "workers.inspect"]), *arguments]
    try:
        ended = subprocess.run(
            command, capture_output=True, timeout=console.inspect_timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        if takes_part and (whole := bytes(error.stdout or b"").rpartition(b"\n")[0]):
            return whole
        raise DeadlineExceeded(f"Inspecting the model took longer than {console.inspect_timeout_s:g} s.") from error
    except OSError as error:
        raise Misconfigured(f"The inspector {command[0]} does not start: {error.strerror}.") from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip()[-_TAIL:]
        if "No module named" in said:
            raise Misconfigured(
                "SavedModels cannot be inspected here: TensorFlow or workers.inspect is missing."
                " Set SIGNALBOX_CONSOLE_INSPECT_COMMAND, or install the worker extra.",
                said=said,
            )
        reason = _without_paths(said.splitlines()[-1]) if said else "no reason given"
        raise InvalidRequest(f"These files are refused: {reason}")
    return ended.stdout


def _without_paths(said: str) -> str:
    """What the inspector says without the folders of this machine; the files' names stay."""
    return _FOLDERS.sub("", said)


def _graph(line: bytes) -> GraphInspection:
    try:
        found = msgspec.json.decode(line, type=GraphInspection)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise Misconfigured("The inspector's answer is not understood.") from error
    if not found.error and not _is_callable(found.signatures):
        return msgspec.structs.replace(found, error=_NO_SIGNATURE)
    return msgspec.structs.replace(found, error=_without_paths(found.error))


def _is_callable(signatures: dict[str, Signature]) -> bool:
    return any(not name.startswith("__") for name in signatures)


def _findings(stdout: bytes) -> Inspection:
    # TensorFlow may write lines of its own before ours; the answer is the last line.
    try:
        found = msgspec.json.decode(stdout.strip().splitlines()[-1], type=Inspection)
    except (IndexError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise Misconfigured("The inspector's answer is not understood.") from error
    if not _is_callable(found.signatures):
        raise InvalidRequest(_NO_SIGNATURE)
    return found
