"""``signalbox queues create``: make a queue from a service.json of PAI EAS."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from signalbox.ops.answers import told
from signalbox.ops.http import Rest
from signalbox.ops.queues import servicefile
from signalbox.program.errors import InvalidRequest

_EPILOG: Final = """Example:

  signalbox queues create service.json --service digits

with a service.json such as

  {"metadata": {"name": "orders", "role": "Queue", "instance": 1},
   "queue": {"max_delivery": 5, "sink": {"memory_ratio": 0.3, "auto_evict": true}}}

Fields and defaults are those of PAI EAS (docs/eas.md). cpu, min_replica and resource are taken and have no effect."""

_MOST_NAMED: Final = 10
"""Accounts that an error names."""


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parser of the act."""
    one = acts.add_parser(
        "create",
        help="Make a queue from a service.json.",
        description=(
            "Make a queue, with its source and its sink, as a service.json for PAI EAS describes it. A field that "
            "there is not is refused by its name."
        ),
        epilog=_EPILOG,
    )
    one.add_argument("file", type=Path, metavar="FILE", help="service.json, with metadata.role Queue.")
    one.add_argument(
        "--account", default="", metavar="ID", help="The account whose keys may use it (the only one there is)."
    )
    one.add_argument(
        "--service", action="append", default=[], metavar="MODEL", help="A model that takes from it; several may."
    )
    one.add_argument("--key", default="", metavar="ID", help="The account's key whose jobs their items are.")
    one.set_defaults(queues_act=_create)
    yield one


def _create(console: Rest, arguments: argparse.Namespace) -> int:
    asked = servicefile.terms_of(servicefile.read(arguments.file))
    asked |= {
        "account": arguments.account or _only_account(console),
        "services": arguments.service,
        "key": arguments.key,
    }
    answer = console.ask("POST", "/api/queues", asked)
    source, sink = answer["source"]["most_items"], answer["sink"]["most_items"]
    said = f"Queue {answer['name']} is made: its source takes {source} items, its sink {sink}."
    return told(answer, said, arguments)


def _only_account(console: Rest) -> str:
    """Id of the one account that there is. Raises :class:`InvalidRequest` naming those that there are."""
    found = [one for one in console.ask("GET", "/api/accounts") if one["state"] != "deleted"]
    if len(found) == 1:
        return str(found[0]["id"])
    if not found:
        raise InvalidRequest("There is no account yet: make an API key in the console, or with POST /api/keys.")
    named = ", ".join(f"{one['id']} ({one['name']})" for one in found[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    raise InvalidRequest(f"Say whose it is, with --account. There are {named}{more}.")
