"""How answers of the console's REST API are told to whoever typed a command, and why it was typed."""

import argparse
from typing import Any, Final

from signalbox.ops import output

UNPUBLISHED: Final = 1
"""Exit status: it is decided, and the fleet does not know of it yet."""


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
