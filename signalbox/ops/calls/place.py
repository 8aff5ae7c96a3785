"""What every caller's command has: the client of the chosen place, and errors that are a job's end."""

import argparse
import contextlib
from typing import Any, Final

from signalbox.client import Client
from signalbox.ops import output, profiles
from signalbox.program.errors import DeadlineExceeded, Gone, Misconfigured, ModelError, NoLongerKept, SignalboxError

_COMPLETED_S: Final = 2.0
"""A person waits for the rest of a word."""
FAILED: Final = 1
"""Exit status: the job did not succeed, or has not yet."""
_ENDINGS: Final = (ModelError, Gone, NoLongerKept, DeadlineExceeded)
_CANCELLED: Final = "cancelled"
"""Errors that say what became of a job, rather than that a call was refused."""


def add_options(parser: argparse.ArgumentParser, *, timeout_s: float, waits_for: str) -> None:
    """How it prints, how long it waits, and where the front is."""
    parser.add_argument("--json", action="store_true", help="JSON instead of text.")
    parser.add_argument(
        "--timeout",
        type=float,
        default=timeout_s,
        metavar="S",
        help=f"Wait so many seconds at most for {waits_for} (default: {timeout_s:g}).",
    )
    profiles.add_front_options(parser)


def add_model(parser: argparse.ArgumentParser, **options: Any) -> None:
    """The model, which shells complete by those that the key may call."""
    vars(parser.add_argument("model", metavar="MODEL", **options))["completer"] = _names


def _names(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    with contextlib.suppress(SignalboxError):
        parsed_args.timeout = _COMPLETED_S
        with client_of(parsed_args) as client:
            return [str(name) for name in client.models()["models"]]
    return []


def client_of(arguments: argparse.Namespace) -> Client:
    """A client of the place's fronts, to be closed by ``with``. Raises :class:`Misconfigured`."""
    place = profiles.front_of(arguments)
    try:
        return Client(place.fronts, place.key, timeout_s=arguments.timeout)
    except ValueError as error:
        raise Misconfigured(f"{', '.join(place.fronts)}: {error}") from error


def told(error: SignalboxError) -> int:
    """Say what became of a job; the exit status. Raises the error where it says that a call was refused."""
    if not isinstance(error, _ENDINGS) and error.code != _CANCELLED:
        raise error
    output.note(f"signalbox: {error.public_message}")
    job_id = error.facts.get("job_id")
    if job_id and isinstance(error, DeadlineExceeded):
        output.note(f"It goes on: signalbox result {job_id}")
    return FAILED
