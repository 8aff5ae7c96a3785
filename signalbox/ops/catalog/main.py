"""``signalbox models``: the acts of operators on models and their versions, over the console's REST API."""

import argparse
from typing import Any, Final

from signalbox.ops import profiles
from signalbox.ops.catalog import deleting, importing, pushing, scaling, steering, viewing
from signalbox.ops.http import Rest

_EPILOG: Final = """Examples:

  signalbox models list --state failed
  signalbox models push digits exported/digits --rows-independent
  signalbox models label digits canary 4
  signalbox models rollback digits
  signalbox models autoscale digits --min 0 --max 4
  signalbox models delete digits 3

Exit status: 0 done; 1 not all of it, or the fleet does not know of it yet; 2 refused, with the reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The acts and their options."""
    parser.description = (
        "Look at models, add versions, and say which version callers get. It does what the console's pages do, under "
        "your operator's name, and stands in the audit. Callers list theirs with `signalbox predict --list`."
    )
    parser.epilog = _EPILOG
    acts = parser.add_subparsers(required=True, metavar="ACT")
    for module in (viewing, pushing, importing, steering, scaling, deleting):
        for one in module.add_acts(acts):
            one.add_argument("--json", action="store_true", help="One JSON document instead of text.")
            profiles.add_console_options(one)


def run(arguments: argparse.Namespace) -> int:
    """Do the act; its exit status."""
    place = profiles.console_of(arguments)
    with Rest(place.console, place.token) as console:
        act: Any = arguments.catalog_act
        return int(act(console, arguments))
