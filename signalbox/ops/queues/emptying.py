"""``signalbox queues purge | redrive | reopen | delete``: what is in a queue, and its end."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from signalbox.ops import output
from signalbox.ops.answers import add_reason, told
from signalbox.ops.http import Rest
from signalbox.ops.queues.answers import SIDES, add_queue, add_side, path_of
from signalbox.program.errors import InvalidRequest, Unavailable
from signalbox.program.words import counted

_AT_ONCE: Final = 1000
"""Items that the console redrives in one call."""


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the acts."""
    yield _purge_parser(acts)
    yield _redrive_parser(acts)
    reopened = acts.add_parser(
        "reopen",
        help="Have a side that was ended take items again.",
        epilog="Example:\n\n  signalbox queues reopen orders",
    )
    add_queue(reopened)
    add_side(reopened)
    add_reason(reopened)
    reopened.set_defaults(queues_act=_reopen)
    yield reopened
    yield _delete_parser(acts)


def _purge_parser(acts: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(
        "purge",
        help="Delete what is in a queue, or in its rear queue.",
        description=(
            "Delete the oldest items of a queue, for every group. It says how many there are first, and deletes that "
            "many where --items says so; what comes meanwhile stays. It cannot be undone."
        ),
        epilog="Examples:\n\n  signalbox queues purge orders               # how many there are\n"
        "  signalbox queues purge orders --items 1203\n  signalbox queues purge orders --sink --rear --items 7",
    )
    add_queue(one)
    add_side(one)
    one.add_argument("--rear", action="store_true", help="What is in its rear queue: dead items.")
    one.add_argument("--items", type=int, metavar="N", help="How many there are, as this has told.")
    add_reason(one)
    one.set_defaults(queues_act=_purge)
    return one


def _redrive_parser(acts: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(
        "redrive",
        help="Put dead items of a rear queue back into their queue.",
        description="Put items of a rear queue back, the oldest first, under new indexes.",
        epilog="Examples:\n\n  signalbox queues redrive orders\n  signalbox queues redrive orders --most 10",
    )
    add_queue(one)
    add_side(one)
    one.add_argument("--most", type=int, metavar="N", help="So many at most (default: what is there now).")
    add_reason(one)
    one.set_defaults(queues_act=_redrive)
    return one


def _delete_parser(acts: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(
        "delete",
        help="Delete a queue with all that is in it.",
        description=(
            "Delete a queue, with its items, its rear queue and its groups. One that has items is deleted only where "
            "--items says how many. It cannot be undone."
        ),
        epilog="Examples:\n\n  signalbox queues delete orders\n  signalbox queues delete orders --items 12",
    )
    add_queue(one)
    one.add_argument("--items", type=int, default=0, metavar="N", help="How many items go with it at most.")
    one.set_defaults(queues_act=_delete)
    return one


def _purge(console: Rest, arguments: argparse.Namespace) -> int:
    what = f"{'dead ' if arguments.rear else ''}item"
    place = f"{'rear queue of the ' if arguments.rear else ''}{arguments.side} of {arguments.queue}"
    if arguments.items is None:
        side = _state(console, arguments.queue)[arguments.side]
        found = side["rear"] if arguments.rear else side["length"]
        if not found:
            return told({"items": 0}, f"The {place} is empty.", arguments)
        raise InvalidRequest(
            f"{counted(found, what)} in the {place}. To delete them add --items {found}; it cannot be undone."
        )
    asked = {"side": arguments.side, "rear": arguments.rear, "items": arguments.items, "reason": arguments.reason}
    answer = console.ask("POST", path_of(arguments.queue, "purge"), asked)
    return told(answer, f"{counted(answer['items'], what)} of the {place} deleted.", arguments)


def _redrive(console: Rest, arguments: argparse.Namespace) -> int:
    there = int(_state(console, arguments.queue)[arguments.side]["rear"])
    left = there if arguments.most is None else min(arguments.most, there)
    done = 0
    with output.Progress("redriving", left) as progress:
        while left > 0:
            most = min(left, _AT_ONCE)
            asked = {"side": arguments.side, "most": most, "reason": arguments.reason}
            now = int(console.ask("POST", path_of(arguments.queue, "redrive"), asked)["items"])
            done, left = done + now, left - now
            progress.advance(now)
            if now < most:
                break
    said = f"{counted(done, 'item')} in the {arguments.side} of {arguments.queue} again."
    return told({"items": done}, said, arguments)


def _reopen(console: Rest, arguments: argparse.Namespace) -> int:
    console.ask("POST", path_of(arguments.queue, "reopen"), {"side": arguments.side, "reason": arguments.reason})
    return told({"side": arguments.side}, f"The {arguments.side} of {arguments.queue} takes items again.", arguments)


def _delete(console: Rest, arguments: argparse.Namespace) -> int:
    state = _state(console, arguments.queue)
    there = sum(state[side]["length"] + state[side]["rear"] for side in SIDES)
    if there > arguments.items:
        raise InvalidRequest(
            f"{arguments.queue} has {counted(there, 'item')}, with those of its rear queue. To delete them with it add "
            f"--items {there}; it cannot be undone."
        )
    console.ask("DELETE", path_of(arguments.queue))
    return told({"queue": arguments.queue, "items": there}, f"Queue {arguments.queue} is deleted.", arguments)


def _state(console: Rest, queue: str) -> dict[str, Any]:
    """How it stands. Raises :class:`Unavailable` where that is not known now."""
    state: dict[str, Any] | None = console.ask("GET", path_of(queue))["state"]
    if state is None:
        raise Unavailable(f"How {queue} stands is not known now: NATS does not tell the console. Try again.")
    return state
