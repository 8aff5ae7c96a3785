"""What acts on models have in common: the paths of the console's REST API, and how its answers are told."""

import argparse
import contextlib
from typing import Any, Final
from urllib.parse import quote

from signalbox.ops import output, profiles
from signalbox.ops.http import Rest
from signalbox.program.errors import SignalboxError

_COMPLETED: Final = 200
_COMPLETED_S: Final = 2.0
"""A person waits for the rest of a word."""
UNPUBLISHED: Final = 1
"""Exit status: it is decided, and the fleet does not know of it yet."""


def path_of(model: str, *parts: object) -> str:
    """The path of a model, or of something of it."""
    return "/".join(("/api/models", *(quote(str(part), safe="") for part in (model, *parts))))


def add_model(parser: argparse.ArgumentParser, **options: Any) -> None:
    """The model, which shells complete by the console's list."""
    vars(parser.add_argument("model", metavar="MODEL", **options))["completer"] = _names


def _names(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    with contextlib.suppress(SignalboxError):
        place = profiles.console_of(parsed_args)
        with Rest(place.console, place.token, answer_s=_COMPLETED_S) as console:
            found = console.ask("GET", "/api/models", query={"q": prefix, "size": _COMPLETED})
            return [str(one["name"]) for one in found["models"]]
    return []


def add_reason(parser: argparse.ArgumentParser) -> None:
    """Why it is done."""
    parser.add_argument("--reason", default="", metavar="TEXT", help="Why, for the audit.")


def told(answer: Any, said: str, arguments: argparse.Namespace) -> int:
    """Print the answer, or ``said``; the exit status."""
    why = answer.get("unpublished", "") if isinstance(answer, dict) else ""
    if arguments.json:
        output.emit_json(answer)
    else:
        print(said)
        if why:
            print(f"The fleet does not know of it yet: {why}")
    return UNPUBLISHED if why else 0


def which(version: int | None) -> str:
    """A version that is chosen, in words."""
    return "the newest version that is served" if version is None else f"version {version}"
