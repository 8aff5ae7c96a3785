"""``signalbox dead``: list, show, redrive and discard dead letters from a shell."""

import argparse
import os
from pathlib import Path
from typing import Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.jobs import deadletters
from signalbox.jobs.deadletters import summary
from signalbox.ops.nats.connected import with_bus
from signalbox.program.errors import Misconfigured, SignalboxError

_MIB: Final = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The acts and their options."""
    parser.description = (
        "A dead letter is a job that was given up: it took the runner down too often, its run took too long, or its "
        "version could not be loaded. "
        "It is kept for 14 days (SIGNALBOX_DEAD_LETTERS_KEPT_S) with its input, to be looked at, run again or thrown "
        "away. "
        "Reads SIGNALBOX_NATS_URL, _USER, _PASSWORD."
    )
    parser.epilog = (
        "Typical: `signalbox dead list`, then `show ID` for the error, then mend the model or the input, then "
        "`redrive ID` to run the same job again as a new one, or `discard ID`."
    )
    acts = parser.add_subparsers(required=True, metavar="ACT", dest="dead_act")
    listed = acts.add_parser(
        "list",
        help="Letters, the oldest first: it is the next to be lost.",
        description="One line a letter: when, job, model, error, size and place of its input, what it was redriven as.",
    )
    listed.add_argument("--model", default="", help="Only letters of this model.")
    listed.add_argument("--after", type=int, default=0, metavar="N", help="Go on after the page that ended at N.")
    listed.add_argument(
        "--limit",
        type=int,
        default=50,
        metavar="N",
        help=f"Letters of a page, at most {deadletters.MOST} (default: 50).",
    )
    listed.add_argument("--json", action="store_true", help="One JSON document instead of lines.")
    shown = acts.add_parser(
        "show",
        help="Everything known of one letter.",
        description="Error, attempts, worker, and name, dtype and shape of each input tensor.",
    )
    _add_id(shown)
    shown.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="Write the input's frame (signalbox.wire.tensors) into this new file, which only you may read.",
    )
    redriven = acts.add_parser(
        "redrive",
        help="Run it again as a new job of the same account.",
        description=(
            "Queue the same input as a new job that names the old one, with the deadline its model gives now. "
            "Lifts the quarantine of the input. Repeating the command makes no second job; the letter stays "
            "until it is discarded."
        ),
        epilog="To run it once more after that, name the job of the redrive before: redrive ID --after JOB.",
    )
    _add_id(redriven)
    redriven.add_argument("--after", default="", metavar="JOB", help="The job that this letter was redriven as last.")
    redriven.add_argument(
        "--with-version",
        type=int,
        default=0,
        metavar="N",
        help="Version of the model to run it with, where its input fits (default: the one it was accepted for).",
    )
    discarded = acts.add_parser("discard", help="Remove a letter and its input for good.")
    _add_id(discarded)


def run(arguments: argparse.Namespace) -> int:
    """Do the act; the exit status. Raises :class:`SignalboxError` in words for a person."""
    return with_bus(_act, arguments)


async def _act(bus: Bus, arguments: argparse.Namespace) -> int:
    if arguments.dead_act == "list":
        await _list(bus, arguments)
    elif arguments.dead_act == "show":
        await _show(bus, arguments.id, arguments.save)
    elif arguments.dead_act == "redrive":
        done = await deadletters.redrive(bus, arguments.id, after=arguments.after, version=arguments.with_version)
        print(f"{'queued as' if done.is_new else 'was redriven before as'} job {done.job_id}")
    else:
        await deadletters.discard(bus, arguments.id)
        print("discarded")
    return 0


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="Id of the job that was given up.")


async def _list(bus: Bus, arguments: argparse.Namespace) -> None:
    page = await deadletters.page(bus, model=arguments.model, after=arguments.after, size=arguments.limit)
    if arguments.json:
        doc = {"letters": [summary(letter) for letter in page.letters], "after": page.after}
        print(msgspec.json.format(msgspec.json.encode(doc)).decode())
        return
    for letter in page.letters:
        reported = summary(letter)
        again = f" redriven as {reported['redriven_as']}" if reported["redriven_as"] else ""
        print(
            f"{reported['at']} {letter.id} {letter.model} {reported['error'] or '?'} "
            f"{letter.size_bytes / _MIB:.2f} MiB {letter.input_is}{again}"
        )
    if not page.letters:
        print("no dead letters" + (" after that" if arguments.after else ""))
    if page.after is not None:
        print(f"more: --after {page.after}")


async def _show(bus: Bus, job_id: str, save: Path | None) -> None:
    letter = await deadletters.find(bus, job_id)
    for name, value in summary(letter).items():
        if value not in ("", None):
            print(f"{name}: {value}")
    try:
        frame = await deadletters.input_of(bus, letter)
    except SignalboxError as error:
        print(f"input: {error.public_message}")
        if save is not None:
            raise
        return
    for tensor in deadletters.described(frame):
        print(f"input {tensor['name']}: {tensor['dtype']} {tensor['shape']}")
    if save is not None:
        _write(save, frame)
        print(f"saved in {save}")


def _write(path: Path, frame: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be made: {error.strerror}.") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(frame)
