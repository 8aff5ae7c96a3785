"""``signalbox queues``: the acts of operators on queues, over the console's REST API, and items at the front."""

import argparse
from typing import Any, Final

from signalbox.ops import profiles
from signalbox.ops.http import Rest
from signalbox.ops.queues import creating, emptying, items, viewing

_EPILOG: Final = """Examples:

  signalbox queues create service.json
  signalbox queues list
  signalbox queues show orders
  signalbox queues redrive orders
  signalbox queues purge orders
  signalbox queues put orders --text 'two shoes'

Exit status: 0 done; 1 the fleet does not know of it yet; 2 refused, with the reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The acts and their options."""
    parser.description = (
        "Make queues and look after them. It does what the console's pages do, under your operator's name, and stands "
        "in the audit. put, get, watch and forget are calls of the front, with an API key (docs/queues.md)."
    )
    parser.epilog = _EPILOG
    acts = parser.add_subparsers(required=True, metavar="ACT")
    for module in (creating, viewing, emptying):
        for one in module.add_acts(acts):
            one.add_argument("--json", action="store_true", help="One JSON document instead of text.")
            profiles.add_console_options(one)
    for one in items.add_acts(acts):
        one.set_defaults(queues_act=None)


def run(arguments: argparse.Namespace) -> int:
    """Do the act; its exit status."""
    if arguments.queues_act is None:
        return items.run(arguments)
    place = profiles.console_of(arguments)
    with Rest(place.console, place.token) as console:
        act: Any = arguments.queues_act
        return int(act(console, arguments))
