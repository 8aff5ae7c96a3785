"""What acts on queues have in common: the paths of the console's REST API, and names to complete."""

import argparse
import contextlib
from typing import Final
from urllib.parse import quote

from signalbox.ops import profiles
from signalbox.ops.http import Rest
from signalbox.program.errors import SignalboxError

_COMPLETED_S: Final = 2.0
"""A person waits for the rest of a word."""
SIDES: Final = ("source", "sink")


def path_of(queue: str, *parts: str) -> str:
    """The path of a queue, or of something of it."""
    return "/".join(("/api/queues", *(quote(part, safe="") for part in (queue, *parts))))


def add_queue(parser: argparse.ArgumentParser) -> None:
    """The queue, which shells complete by the console's list."""
    vars(parser.add_argument("queue", metavar="QUEUE"))["completer"] = _names


def add_side(parser: argparse.ArgumentParser) -> None:
    """Which side of the queue."""
    parser.add_argument("--sink", action="store_const", const="sink", default="source", dest="side", help="Its sink.")


def _names(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    with contextlib.suppress(SignalboxError):
        place = profiles.console_of(parsed_args)
        with Rest(place.console, place.token, answer_s=_COMPLETED_S) as console:
            return [name for one in console.ask("GET", "/api/queues") if (name := str(one["name"])).startswith(prefix)]
    return []
