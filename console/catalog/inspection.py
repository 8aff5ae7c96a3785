"""Inspects a SavedModel in a separate short-lived process. The console never loads one: a SavedModel is a program."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
from django.conf import settings

from signalbox.program.errors import DeadlineExceeded, InvalidRequest, Misconfigured
from signalbox.wire.messages import Signature

_TAIL = 600
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


def inspect(path: Path) -> Inspection:
    """What the SavedModel in ``path`` offers.

    Raises :class:`InvalidRequest` if it is none, cannot be read, lacks files or changes, :class:`DeadlineExceeded`,
    :class:`Misconfigured` if the inspector itself does not run.
    """
    return _findings(_asked(str(path)))


def rules() -> str:
    """Digest of the list that versions are judged by now. Raises as :func:`inspect`."""
    return _asked("--rules").decode().strip()


def _asked(argument: str) -> bytes:
    console = settings.CONSOLE
    given = shlex.split(console.inspect_command)
    command = [*(given or [sys.executable, "-m", "workers.inspect"]), argument]
    try:
        ended = subprocess.run(
            command, capture_output=True, timeout=console.inspect_timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
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


def _findings(stdout: bytes) -> Inspection:
    # TensorFlow may write lines of its own before ours; the answer is the last line.
    try:
        found = msgspec.json.decode(stdout.strip().splitlines()[-1], type=Inspection)
    except (IndexError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise Misconfigured("The inspector's answer is not understood.") from error
    if all(name.startswith("__") for name in found.signatures):
        raise InvalidRequest("The model has no signature; export it with at least one.")
    return found
