"""``signalbox models delete``: delete a model or a version, say until when that can be undone, and undo it."""

import argparse
from collections.abc import Iterator
from typing import Any

from signalbox.ops.answers import add_reason, told
from signalbox.ops.catalog.answers import add_model, path_of
from signalbox.ops.http import Rest
from signalbox.program.errors import InvalidRequest


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parser of the act."""
    one = acts.add_parser(
        "delete",
        help="Delete a model or a version, or bring it back.",
        description=(
            "Callers get 404 at once; for a day it can be brought back as it was. Refused while the default, a "
            "label, a canary or an open job needs it. A version's number never serves other bytes."
        ),
        epilog=(
            "Examples:\n\n  signalbox models delete digits 3\n  signalbox models delete digits 3 --undo\n"
            "  signalbox models delete digits          # with all of its versions\n"
            "  signalbox models list --deleted         # what can be brought back, and until when"
        ),
    )
    add_model(one)
    one.add_argument("version", nargs="?", type=int, metavar="VERSION", help="This version alone.")
    one.add_argument("--undo", action="store_true", help="Bring it back.")
    add_reason(one)
    one.set_defaults(catalog_act=_delete)
    yield one


def _delete(console: Rest, arguments: argparse.Namespace) -> int:
    model, version = arguments.model, arguments.version
    parts = ("versions", version) if version is not None else ()
    what = f"version {version} of {model}" if version is not None else f"model {model}"
    if arguments.undo:
        answer = console.ask("POST", path_of(model, *parts, "undo"), {"reason": arguments.reason})
        return told(answer, f"{what} is back, as it was.", arguments)
    if arguments.reason:
        raise InvalidRequest("A deletion takes no --reason; an --undo does.")
    answer = console.ask("DELETE", path_of(model, *parts))
    until = answer.get("until") or _until(console, model, version)
    undo = f"signalbox models delete {model}{f' {version}' if version is not None else ''} --undo"
    return told(answer, f"{what} is deleted. Until {until}: {undo}", arguments)


def _until(console: Rest, model: str, version: int | None) -> str:
    """When it is too late to bring it back."""
    kind = "version" if version is not None else "model"
    found = console.ask("GET", "/api/deleted")
    same = (one for one in found if (one["kind"], one["name"], one["version"]) == (kind, model, version))
    return str(next((one["until"] for one in same), "the console's time to undo is over"))
