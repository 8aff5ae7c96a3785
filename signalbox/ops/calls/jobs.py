"""``signalbox jobs``: the account's jobs, and what is done to them."""

import argparse
from collections.abc import Callable
from typing import Final

from signalbox.client import Client
from signalbox.ops.calls import jobacts, joblists, place

_EPILOG: Final = """Examples:

  signalbox jobs list --state failed --since 2h
  signalbox jobs show $JOB
  signalbox jobs change $JOB --priority hi
  signalbox jobs retry --state failed --model digits --since 1d
  signalbox jobs list --tag run:7 --ids | signalbox jobs cancel -

Exit status: 0 done, 1 some were refused, 2 refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The acts and their options."""
    parser.description = "List, show, cancel, delete, retry and change the jobs of your key's account."
    parser.epilog = _EPILOG
    acts = parser.add_subparsers(required=True, metavar="ACT")
    for module in (joblists, jobacts):
        for one in module.add_acts(acts):
            place.add_options(one, timeout_s=60.0, waits_for="an answer")


def run(arguments: argparse.Namespace) -> int:
    """Do the act; its exit status."""
    act: Callable[[Client, argparse.Namespace], int] = arguments.job_act
    with place.client_of(arguments) as client:
        return act(client, arguments)
