"""``signalbox models autoscale``: whether replicas of a model follow its load, and between which bounds."""

import argparse
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from signalbox.ops.answers import add_reason, told
from signalbox.ops.catalog.answers import add_model, path_of
from signalbox.ops.http import Rest
from signalbox.program.errors import InvalidRequest

_SETTINGS: Final = {
    "min": "autoscale_min",
    "max": "autoscale_max",
    "backlog": "queue_backlog",
    "wait": "target_wait_s",
    "tolerance": "scale_tolerance",
    "up_window": "scale_up_window_s",
    "down_window": "scale_down_window_s",
    "zero_grace": "scale_to_zero_grace_s",
    "activation": "scale_up_activation",
}
"""The setting of a model that each option gives."""


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parser of the act."""
    one = acts.add_parser(
        "autoscale",
        help="Have a model's replicas follow its load, or no longer.",
        description=(
            "Turn autoscaling on with the settings that are given; the others stay as they are. What it was is said, "
            "with the command that brings it back."
        ),
        epilog=(
            "Examples:\n\n  signalbox models autoscale digits --min 0 --max 4 --backlog 10\n"
            "  signalbox models autoscale digits --wait 30 --down-window 60\n"
            "  signalbox models autoscale digits --off --replicas 2"
        ),
    )
    add_model(one)
    one.add_argument("--min", type=int, metavar="N", help="Fewest replicas; 0: no worker is kept while nobody calls.")
    one.add_argument("--max", type=int, metavar="N", help="Most replicas.")
    one.add_argument("--backlog", type=_number, metavar="JOBS", help="Waiting jobs for each replica; 0: not looked at.")
    one.add_argument("--wait", type=_number, metavar="S", help="Longest that the oldest job shall wait; 0: any time.")
    one.add_argument("--tolerance", type=_number, metavar="PART", help="Part of a target that it may be missed by.")
    one.add_argument("--up-window", type=_number, metavar="S", help="More replicas once they were needed so long.")
    one.add_argument("--down-window", type=_number, metavar="S", help="Fewer once the others were not needed so long.")
    one.add_argument("--zero-grace", type=_number, metavar="S", help="Without a job so long until no worker is kept.")
    one.add_argument("--activation", type=int, metavar="N", help="Replicas that the first job brings.")
    one.add_argument("--off", action="store_true", help="Replicas stay at the number that they have, or at --replicas.")
    one.add_argument("--replicas", type=int, metavar="N", help="How many there are from now on, or to begin with.")
    add_reason(one)
    one.set_defaults(catalog_act=_autoscale)
    yield one


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):  # which no JSON says
        raise ValueError(text)
    return value


def _autoscale(console: Rest, arguments: argparse.Namespace) -> int:
    given = {option: getattr(arguments, option) for option in _SETTINGS if getattr(arguments, option) is not None}
    if arguments.off and given:
        raise InvalidRequest("--off takes none of the settings; they stay for the next time.")
    settings = {_SETTINGS[option]: value for option, value in given.items()}
    if arguments.replicas is not None:
        settings["replicas"] = arguments.replicas
    path = path_of(arguments.model)
    before = console.ask("GET", path)
    answer = console.ask("PATCH", path, {"autoscale": not arguments.off, **settings, "reason": arguments.reason})
    return told(answer, "\n".join(_said(before, answer, given)), arguments)


def _said(before: Mapping[str, Any], now: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """How it is, how it was, and what takes it back."""
    yield f"{now['name']}: {_words(now)}; before: {_words(before)}."
    if now["autoscale"] and not now["replicas"]:
        yield "Its replicas were set to 0 by hand, which refuses jobs and stays: --replicas 1 ends that."
    changed = [option for option in given if before[_SETTINGS[option]] != now[_SETTINGS[option]]]
    if (before["autoscale"], before["replicas"]) != (now["autoscale"], now["replicas"]) or changed:
        yield f"To take that back: {_back(before, changed, is_set=before['replicas'] != now['replicas'])}"


def _words(model: Mapping[str, Any]) -> str:
    if not model["autoscale"]:
        return f"{model['replicas']} {'replica' if model['replicas'] == 1 else 'replicas'} by hand"
    targets = [f"{model['queue_backlog']:g} waiting jobs each"] if model["queue_backlog"] else []
    targets += [f"{model['target_wait_s']:g} s of waiting at most"] if model["target_wait_s"] else []
    return ", ".join((f"{model['autoscale_min']} to {model['autoscale_max']} replicas by its load", *targets))


def _back(before: Mapping[str, Any], changed: list[str], *, is_set: bool) -> str:
    """The command for what was. changed: options, not looked at while replicas are set by hand. is_set: replicas."""
    command = f"signalbox models autoscale {before['name']}"
    if not before["autoscale"]:
        return f"{command} --off --replicas {before['replicas']}"
    settings = [f"--{each.replace('_', '-')} {before[_SETTINGS[each]]}" for each in changed]
    return " ".join((command, *settings, *([f"--replicas {before['replicas']}"] if is_set else [])))
