"""``signalbox events``: follow a job."""

import argparse

from signalbox.client import Event
from signalbox.ops import output
from signalbox.ops.calls import place, times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which job."""
    parser.description = (
        "Print each change of a job as it happens, until it has ended: its state, what it waits for, its place in the "
        "queue. A broken connection is made anew, and goes on with the present state."
    )
    parser.epilog = (
        "Examples:\n\n  signalbox events $JOB\n  signalbox events $JOB --json | jq -r .phase\n\n"
        "Exit status: 0 the job succeeded, 1 it did not, 2 refused."
    )
    parser.add_argument("id", metavar="ID")
    place.add_options(parser, timeout_s=60.0, waits_for="the first event")


def run(arguments: argparse.Namespace) -> int:
    """Print events to the last one; the exit status."""
    state = ""
    with place.client_of(arguments) as client:
        for event in client.events(arguments.id):
            state = event.state
            if arguments.json:
                output.emit_line(dict(event.document))
            else:
                print(_line(event), flush=True)
    return 0 if state == "succeeded" else place.FAILED


def _line(event: Event) -> str:
    parts = [f"{times.now().astimezone():%H:%M:%S}", event.state]
    if event.phase != event.state:
        parts.append(event.phase)
    if event.position is not None:
        parts.append(f"{event.position} ahead")
    if event.estimated_wait_s is not None:
        parts.append(f"about {event.estimated_wait_s:.0f} s")
    error = event.document.get("error")
    if isinstance(error, dict):
        parts.append(str(error.get("message") or error.get("code")))
    return "  ".join(parts)
