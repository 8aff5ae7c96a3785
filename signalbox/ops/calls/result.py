"""``signalbox result``: print or save a job's result."""

import argparse

from signalbox.ops import output
from signalbox.ops.calls import arrays, place
from signalbox.program.errors import SignalboxError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which job, and where its result goes."""
    parser.description = "Wait until a job has ended, then print its result or save it for numpy."
    parser.epilog = (
        "Examples:\n\n  signalbox result $JOB\n  signalbox result $JOB -o answers.npz\n"
        "  signalbox result $JOB --json | jq '.y'\n\n"
        "Exit status: 0 here it is, 1 the job did not succeed or not yet, 2 refused."
    )
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--save", "-o", default="", metavar="FILE", help=".npz, .npy, .json; -: .npz to a pipe.")
    place.add_options(parser, timeout_s=300.0, waits_for="the job's end")


def run(arguments: argparse.Namespace) -> int:
    """Wait and print; the exit status."""
    arrays.check(arguments.save)
    with place.client_of(arguments) as client:
        try:
            with output.Progress(f"waiting for {arguments.id}"):
                found = client.result(arguments.id, timeout_s=arguments.timeout)
        except SignalboxError as error:
            return place.told(error)
    arrays.put(found, arguments.save, is_json=arguments.json)
    return 0
