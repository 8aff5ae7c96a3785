"""``signalbox submit``: accept a job, or many, to be run later."""

import argparse
from typing import Any

from signalbox.client import Client, Job
from signalbox.ops import output
from signalbox.ops.calls import inputs, many, place, times
from signalbox.ops.calls.predict import add_version_options, only_input
from signalbox.program.errors import InvalidRequest, SignalboxError

_EPILOG = f"""{inputs.HELP}

Examples:

  JOB=$(signalbox submit half_plus_two -i '[1.0]') && signalbox result $JOB
  signalbox submit digits -i images.npz --tag nightly --not-before 2h --wait
  signalbox submit digits --many rows.jsonl --tag run:7 > ids
  zcat rows.jsonl.gz | signalbox submit digits --many - --json

A line of --many is rows ([[0, 1], ...]), or an object as POST /v1/jobs takes it: "instances" or "inputs", and where it
differs from the options "model", "version", "label", "signature_name", "priority", "deadline_s", "tags", "not_before",
"webhook".

It prints the job's id; of many a line each, in their order, "-" for one that was refused. Exit status: 0 accepted (with
--wait: succeeded), 1 some were not, 2 refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, its inputs, and when and how it is to run."""
    parser.description = "Have jobs accepted durably and return at once; they run while you do something else."
    parser.epilog = _EPILOG
    place.add_model(parser)
    inputs.add_option(parser)
    parser.add_argument("--many", default="", metavar="FILE", help="A job a line (JSON lines); -: standard input.")
    add_version_options(parser)
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="To find it by; at most 8.")
    parser.add_argument("--priority", choices=("hi", "mid", "lo"), help="hi needs a key with jobs:urgent.")
    parser.add_argument("--deadline", type=float, metavar="S", help="Give it up if it has not started in so long.")
    parser.add_argument("--not-before", metavar="TIME", help="Start it no earlier: 30s, 10m, 2h, 3d, or RFC 3339.")
    parser.add_argument("--webhook", metavar="URL", help="Told of the end; on a host of the account's.")
    parser.add_argument("--idempotency-key", metavar="KEY", help="The same key again submits nothing twice.")
    parser.add_argument("--wait", action="store_true", help="Return when all have ended; 1 if one did not succeed.")
    place.add_options(parser, timeout_s=300.0, waits_for="the end, with --wait")


def run(arguments: argparse.Namespace) -> int:
    """Submit; the exit status."""
    if bool(arguments.many) == bool(arguments.input):
        raise InvalidRequest("Give the inputs of one job with --input, or of many with --many.")
    with place.client_of(arguments) as client:
        if arguments.many:
            accepted, refused = many.submit(client, arguments.many, options_of(arguments), arguments)
        else:
            accepted, refused = [_submit(client, arguments)], 0
        status = wait_for(client, accepted, arguments) if arguments.wait else 0
    return place.FAILED if refused else status


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """How the jobs are to run, as :class:`signalbox.client.Submission` has it."""
    known = {
        "version": arguments.version,
        "label": arguments.label,
        "signature": arguments.signature,
        "priority": arguments.priority,
        "deadline_s": arguments.deadline,
        "tags": tuple(arguments.tag),
        "webhook": arguments.webhook,
        "not_before": times.ahead(arguments.not_before, times.now()) if arguments.not_before else None,
    }
    return {name: value for name, value in known.items() if value not in (None, ())}


def _submit(client: Client, arguments: argparse.Namespace) -> Job:
    given = inputs.read(arguments.input, lambda: only_input(client, arguments.model))
    options = options_of(arguments)
    if given.signature:
        options.setdefault("signature", given.signature)
    with output.Progress(f"sending {arguments.model}"):
        job = client.submit(
            arguments.model,
            given.inputs,
            instances=given.instances,
            idempotency_key=arguments.idempotency_key,
            **options,
        )
    if arguments.json:
        output.emit_line(dict(job.document))
    else:
        print(job.id, flush=True)
    return job


def wait_for(client: Client, jobs: list[Job], arguments: argparse.Namespace) -> int:
    """Wait until all have ended, and say of those that did not succeed why; the exit status."""
    failed = 0
    with output.Progress("ended", len(jobs)) as progress:
        for job in jobs:
            try:
                ended = client.wait(job, timeout_s=arguments.timeout)
            except SignalboxError as error:
                return place.told(error)
            progress.advance()
            if ended.state != "succeeded":
                failed += 1
                why = f": {ended.error.message}" if ended.error else ""
                output.note(f"{job.id} {ended.state}{why}")
    return place.FAILED if failed else 0
