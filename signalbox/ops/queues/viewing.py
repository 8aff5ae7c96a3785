"""``signalbox queues list | show``."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from signalbox.ops import output
from signalbox.ops.http import Rest
from signalbox.ops.queues.answers import SIDES, add_queue, path_of

_SETTINGS: Final = (
    *("group", "instance", "memory", "max_delivery", "max_idle", "dead_message_policy"),
    *("cpu", "min_replica", "resource"),
)


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the acts."""
    listed = acts.add_parser(
        "list",
        help="Queues by name: how full they are, and who watches.",
        epilog="Examples:\n\n  signalbox queues list\n  signalbox queues list --json",
    )
    listed.set_defaults(queues_act=_list)
    yield listed
    shown = acts.add_parser(
        "show",
        help="All that is known of a queue: settings, groups, consumers.",
        epilog="Example:\n\n  signalbox queues show orders",
    )
    add_queue(shown)
    shown.set_defaults(queues_act=_show)
    yield shown


def _list(console: Rest, arguments: argparse.Namespace) -> int:
    found = console.ask("GET", "/api/queues")
    if arguments.json:
        output.emit_json(found)
        return 0
    headings = ("QUEUE", "STATE", "ACCOUNT", "SOURCE", "SINK", "BYTES", "CONSUMERS", "REAR", "SERVICES")
    output.emit_table(headings, map(_row, found), "no queue; make one: signalbox queues create service.json")
    return 0


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    state = one["state"]
    depths = [f"{state[side]['length'] if state else '?'}/{one[side]['most_items']}" for side in SIDES]
    consumers = sum(len(state[side]["consumers"]) for side in SIDES) if state else "?"
    held = sum(state[side]["bytes"] for side in SIDES) if state else "?"
    rear = sum(state[side]["rear"] for side in SIDES) if state else "?"
    return (
        one["name"],
        state["words"] if state else "not known",
        one["account"],
        *depths,
        held,
        consumers,
        rear,
        one["services"],
    )


def _show(console: Rest, arguments: argparse.Namespace) -> int:
    found = console.ask("GET", path_of(arguments.queue))
    if arguments.json:
        output.emit_json(found)
        return 0
    state = found["state"]
    output.emit_fields(
        (
            ("queue", found["name"]),
            ("account", found["account"]),
            ("services", found["services"]),
            ("key of jobs", found["key"]),
            ("state", state["words"] if state else "not known now"),
            ("why", state["why"] if state else ""),
            ("unpublished", found["unpublished"]),
            *((name, found[name]) for name in _SETTINGS),
            *((side, _bounds(found[side])) for side in SIDES),
        )
    )
    for side in SIDES if state else ():
        _print_side(side, state[side])
    return 0


def _bounds(side: dict[str, Any]) -> str:
    full = "drops its oldest" if side["auto_evict"] else "refuses more"
    return f"at most {side['most_items']} items of {side['most_bytes']} bytes; full, it {full}"


def _print_side(name: str, side: dict[str, Any]) -> None:
    oldest = f", the oldest of {side['oldest_at']}" if side["oldest_at"] else ""
    ended = f"{', ended' if side['is_ended'] else ''}{', away' if side.get('is_away') else ''}"
    print(f"\n{name}: {side['length']} items of {side['bytes']} bytes{oldest}; {side['rear']} in its rear queue{ended}")
    if side["groups"]:
        rows = [(one["name"], one["pending"], one["left"], one["index"]) for one in side["groups"]]
        output.emit_table(("GROUP", "GIVEN OUT", "LEFT", "LAST INDEX"), rows)
    if side["consumers"]:
        watches = [
            (f"{one['group']}.{one['uid']}", one["status"], one["window"], one["pending"], one["index"])
            for one in side["consumers"]
        ]
        output.emit_table(("CONSUMER", "STATE", "WINDOW", "HOLDS", "LAST INDEX"), watches)
