"""``signalbox models label | rollback | pin``: which version callers get, and what stays in memory."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from signalbox.ops.answers import add_reason, told
from signalbox.ops.catalog.answers import add_model, path_of, which
from signalbox.ops.http import Rest
from signalbox.program.errors import Conflict, InvalidRequest

_DEFAULT: Final = "-"
"""The default, in a path of splits: no label begins so."""
_LATEST: Final = "latest"


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the acts."""
    yield _label_parser(acts)
    yield _rollback_parser(acts)
    yield _pin_parser(acts)


def _label_parser(acts: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(
        "label",
        help="Point a label at a version, or take it away.",
        epilog=(
            "Examples:\n\n  signalbox models label digits canary 4\n  signalbox models label digits canary --remove\n\n"
            "Callers ask by label: /v1/models/digits/labels/canary:predict."
        ),
    )
    add_model(one)
    one.add_argument("label", metavar="LABEL")
    what = one.add_mutually_exclusive_group(required=True)
    what.add_argument("version", nargs="?", type=int, metavar="VERSION")
    what.add_argument("--remove", action="store_true", help="Take the label away.")
    add_reason(one)
    one.set_defaults(catalog_act=_label)
    return one


def _rollback_parser(acts: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(
        "rollback",
        help="Have callers get the version before; end a canary.",
        description=(
            "While part of the requests gets a candidate, all of them get the other version again. Else requests "
            "without a version (with --label: those by the label) get the next lower one, or --to. What they got is "
            "said, with the command that brings it back."
        ),
        epilog=(
            "Examples:\n\n  signalbox models rollback digits\n"
            "  signalbox models rollback digits --label stable --to 2\n"
            "  signalbox models rollback digits --to latest    # the newest one from now on"
        ),
    )
    add_model(one)
    one.add_argument("--label", default="", metavar="LABEL", help="Requests by this label.")
    one.add_argument(
        "--to", metavar="VERSION", help=f"A number, or {_LATEST}: always the newest (default: the one before)."
    )
    add_reason(one)
    one.set_defaults(catalog_act=_rollback)
    return one


def _pin_parser(acts: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(
        "pin",
        help="Keep a model in the memory of the devices that it is placed on, or no longer.",
        epilog=(
            "Examples:\n\n  signalbox models pin digits\n  signalbox models pin digits 4 --host gpu-1 --host gpu-2\n"
            "  signalbox models pin digits --off"
        ),
    )
    add_model(one)
    one.add_argument("version", nargs="?", type=int, default=0, metavar="VERSION", help="Default: what callers get.")
    one.add_argument("--host", action="append", default=[], metavar="ID", help="On these hosts alone.")
    one.add_argument("--off", action="store_true", help="It may leave memory again.")
    add_reason(one)
    one.set_defaults(catalog_act=_pin)
    return one


def _label(console: Rest, arguments: argparse.Namespace) -> int:
    body = {"version": arguments.version, "reason": arguments.reason}
    answer = console.ask("PUT", path_of(arguments.model, "labels", arguments.label), body)
    gets = "is taken away" if arguments.version is None else f"is version {arguments.version}"
    return told(answer, f"{arguments.model}: label {arguments.label} {gets}.", arguments)


def _rollback(console: Rest, arguments: argparse.Namespace) -> int:
    model, label, target = arguments.model, arguments.label, arguments.label or _DEFAULT
    splits = console.ask("GET", path_of(model, "splits"))["splits"]
    split = next((one for one in splits if one["target"] == label), None)
    whose = f"requests by label {label}" if label else "requests without a version"
    if split is not None:
        if arguments.to is not None:
            raise Conflict(
                f"Part of the {whose} gets version {split['candidate']}: roll that back first, without --to."
            )
        answer = console.ask("POST", path_of(model, "splits", target, "roll-back"), {"reason": arguments.reason})
        return told(answer, f"{model}: all {whose} get version {split['base']}, none {split['candidate']}.", arguments)
    before = console.ask("GET", path_of(model))
    was = before["labels"].get(label) if label else before["default_version"]
    chosen = _chosen(before, was if was is not None else before["serving_version"], arguments)
    path = path_of(model, "labels", label) if label else path_of(model, "default")
    answer = console.ask("PUT", path, {"version": chosen, "reason": arguments.reason})
    back = f"signalbox models rollback {model}{f' --label {label}' if label else ''} --to {was or _LATEST}"
    said = f"{model}: {whose} get {which(chosen)}; before it was {which(was)}."
    return told(answer, said if label and was is None else f"{said}\nTo take that back: {back}", arguments)


def _chosen(model: dict[str, Any], serving: int | None, arguments: argparse.Namespace) -> int | None:
    """The version to go to; None: always the newest. Raises :class:`InvalidRequest`."""
    if arguments.to == _LATEST and not arguments.label:
        return None
    if arguments.to is not None:
        if not arguments.to.isdecimal():
            raise InvalidRequest(
                "--to is the number of a version" + (f", or {_LATEST}." if not arguments.label else ".")
            )
        return int(arguments.to)
    numbers = [one["number"] for one in model["versions"] if str(one["number"]) not in model["unserved"]]
    lower = [number for number in numbers if serving is not None and number < serving]
    if not lower:
        raise InvalidRequest(f"{model['name']} serves no version below {serving}. Name one with --to.")
    return int(max(lower))


def _pin(console: Rest, arguments: argparse.Namespace) -> int:
    body = {
        "on": not arguments.off,
        "version": arguments.version,
        "hosts": arguments.host,
        "reason": arguments.reason,
    }
    answer = console.ask("PUT", path_of(arguments.model, "pin"), body)
    what = f"version {arguments.version}" if arguments.version else "the version that callers get"
    where = f" on {', '.join(arguments.host)}" if arguments.host else ""
    stays = "may leave memory" if arguments.off else f"stays in memory: {what}{where}"
    return told(answer, f"{arguments.model} {stays}.", arguments)
