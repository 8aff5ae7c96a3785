"""``signalbox queues put | get | watch | forget``: items of a queue, and its groups, at the front with an API key."""

import argparse
import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from signalbox.client import Client
from signalbox.client.queues import Item, Queue
from signalbox.ops import output
from signalbox.ops.answers import told
from signalbox.ops.calls import place
from signalbox.ops.queues.answers import add_side
from signalbox.program.errors import InvalidRequest, Misconfigured

NOTHING: Final = 1
"""Exit status: no item came in time."""


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the acts."""
    yield _parser(
        acts,
        "put",
        _put,
        help="Put an item into a queue.",
        description="Put an item, which is durable once its index is printed.",
        epilog="Examples:\n\n  signalbox queues put orders --text 'two shoes' --tag colour=red\n"
        "  signalbox queues put orders --file order.bin --high",
    )
    yield _parser(
        acts,
        "get",
        _get,
        help="Take items out of a queue.",
        description="Print items, the oldest first, as soon as there is one. They are deleted, for every group.",
        epilog="Examples:\n\n  signalbox queues get orders --keep --most 10 --json\n"
        "  signalbox queues get orders --sink --request-id ID --timeout 60\n"
        "  signalbox queues get orders --rear --keep",
    )
    yield _parser(
        acts,
        "watch",
        _watch,
        help="Print items as they are given out.",
        description="Print items as they are given out, until the stream ends or you do. Each is committed once it is "
        "printed: its group does not get it again.",
        epilog="Example:\n\n  signalbox queues watch orders --group audit --json",
    )
    yield _parser(
        acts,
        "forget",
        _forget,
        help="Forget a group of consumers that nobody watches for.",
        description="Remove a group of consumers, with what is kept for it alone. It is refused while anybody watches "
        "for it. Watched again it is a new group.",
        epilog="Example:\n\n  signalbox queues forget orders --group audit",
    )


def _parser(acts: Any, name: str, act: Any, **texts: str) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(name, **texts)
    one.add_argument("queue", metavar="QUEUE")
    add_side(one)
    if name == "put":
        what = one.add_mutually_exclusive_group(required=True)
        what.add_argument("--text", metavar="TEXT", help="The item.")
        what.add_argument("--file", "-f", metavar="FILE", help="File with the item; - = standard input.")
        one.add_argument("--high", action="store_true", help="It is given out before others.")
    if name == "get":
        one.add_argument("--most", type=int, default=1, metavar="N", help="So many at most (%(default)s).")
        one.add_argument("--index", type=int, default=0, metavar="N", help="From this index on; -1 = the newest.")
        one.add_argument("--request-id", metavar="ID", help="What was put under this id, or came of it.")
        one.add_argument("--keep", action="store_true", help="Do not delete them.")
        one.add_argument("--rear", action="store_true", help="Of its rear queue: dead items.")
    if name == "watch":
        one.add_argument("--group", default="eas", metavar="NAME", help="Whose share of items (%(default)s).")
        one.add_argument("--window", type=int, default=1, metavar="N", help="Given out at a time (%(default)s).")
    if name == "forget":
        one.add_argument("--group", required=True, metavar="NAME", help="Which one; eas stays.")
    else:
        one.add_argument(
            "--tag", action="append", default=[], metavar="NAME=VALUE", help="A tag; several may be given."
        )
    place.add_options(
        one, timeout_s=5.0 if name == "get" else 60.0, waits_for="an item" if name == "get" else "answers"
    )
    one.set_defaults(queues_call=act)
    return one


def run(arguments: argparse.Namespace) -> int:
    """Do the act at the front; its exit status."""
    with place.client_of(arguments) as client:
        return int(arguments.queues_call(_queue(client, arguments), arguments))


def _queue(client: Client, arguments: argparse.Namespace) -> Queue:
    try:
        queue = client.queue(arguments.queue, group=getattr(arguments, "group", "eas"))
    except ValueError as error:
        raise InvalidRequest(f"--group: {error}.") from error
    return queue.sink if arguments.side == "sink" else queue


def _put(queue: Queue, arguments: argparse.Namespace) -> int:
    data = _read(arguments.file) if arguments.text is None else arguments.text.encode()
    receipt = queue.put(data, tags=_tags(arguments), high=arguments.high)
    if arguments.json:
        output.emit_json({"index": receipt.index, "request_id": receipt.request_id})
    else:
        output.emit_fields((("index", receipt.index), ("request id", receipt.request_id)))
    return 0


def _get(queue: Queue, arguments: argparse.Namespace) -> int:
    found = queue.get(
        index=arguments.index,
        length=arguments.most,
        timeout_s=arguments.timeout,
        tags=_tags(arguments),
        request_id=arguments.request_id,
        delete=not arguments.keep,
        rear=arguments.rear,
    )
    for item in found:
        _tell(item, arguments)
    if not found:
        output.note(f"No item came in {arguments.timeout:g} s." if not arguments.rear else "There is no dead item.")
    return 0 if found else NOTHING


def _watch(queue: Queue, arguments: argparse.Namespace) -> int:
    try:
        for item in queue.watch(window=arguments.window, tags=_tags(arguments)):
            _tell(item, arguments)
    except ImportError as error:
        raise Misconfigured(str(error)) from error
    return 0


def _forget(queue: Queue, arguments: argparse.Namespace) -> int:
    queue.forget_group()
    return told({"group": arguments.group}, f"The group {arguments.group} of {arguments.queue} is gone.", arguments)


def _tell(item: Item, arguments: argparse.Namespace) -> None:
    """Print an item: its bytes and a line's end, or one line of JSON with text, or base64 of what is none."""
    if not arguments.json:
        sys.stdout.buffer.write(item.data + b"\n")
        sys.stdout.buffer.flush()
        return
    try:
        data = {"text": item.data.decode()}
    except UnicodeDecodeError:
        data = {"base64": base64.b64encode(item.data).decode()}
    output.emit_line({"index": item.index, **data, "tags": {**item.tags, **item.notes}})


def _read(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror or error}.") from error


def _tags(arguments: argparse.Namespace) -> dict[str, str]:
    pairs = [one.partition("=") for one in arguments.tag]
    if bare := [name for name, found, _ in pairs if not found]:
        raise InvalidRequest(f"--tag {bare[0]}: write NAME=VALUE.")
    return {name: value for name, _, value in pairs}
