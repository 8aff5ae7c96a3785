"""What acts on models have in common: the paths of the console's REST API, and names to complete."""

import argparse
import contextlib
from typing import Any, Final
from urllib.parse import quote

from signalbox.ops import profiles
from signalbox.ops.http import Rest
from signalbox.program.errors import SignalboxError

_COMPLETED: Final = 200
_COMPLETED_S: Final = 2.0
"""A person waits for the rest of a word."""


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


def which(version: int | None) -> str:
    """A version that is chosen, in words."""
    return "the newest version that is served" if version is None else f"version {version}"
