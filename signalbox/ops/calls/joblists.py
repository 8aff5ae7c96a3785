"""``signalbox jobs list | show``, and the options that choose jobs."""

import argparse
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, Final, cast

from signalbox.client import Client, Job
from signalbox.client.jobs import JobFilter
from signalbox.ops import output
from signalbox.ops.calls import times
from signalbox.program.errors import InvalidRequest

_STATES: Final = ("queued", "running", "succeeded", "failed", "cancelled", "expired")


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the acts."""
    listed = acts.add_parser(
        "list",
        help="Your jobs, newest first.",
        epilog=(
            "Examples:\n\n  signalbox jobs list\n  signalbox jobs list --state queued --state running --model digits\n"
            "  signalbox jobs list --error memory --since 1d --limit 500 --json"
        ),
    )
    add_filter(listed)
    listed.add_argument("--limit", type=int, default=50, metavar="N", help="At most so many (default: 50; 0: all).")
    listed.add_argument("--ids", action="store_true", help="Ids alone, for another command.")
    listed.set_defaults(job_act=_list)
    yield listed
    shown = acts.add_parser("show", help="All that is known of a job.", epilog="Example:\n\n  signalbox jobs show $JOB")
    shown.add_argument("id", metavar="ID")
    shown.set_defaults(job_act=_show)
    yield shown


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Which jobs."""
    which = parser.add_argument_group("which jobs")
    which.add_argument("--state", action="append", choices=_STATES, default=[], help="Several: any of them.")
    which.add_argument("--model", metavar="MODEL")
    which.add_argument("--tag", action="append", default=[], metavar="TAG", help="Several: all of them.")
    which.add_argument("--error", metavar="TEXT", help="The text of their error has this.")
    which.add_argument("--since", metavar="TIME", help="Accepted after: 30s, 10m, 2h, 3d ago, or RFC 3339.")
    which.add_argument("--until", metavar="TIME", help="Accepted before.")
    which.add_argument("--sync", action="store_true", help="Also predictions that were waited for.")


def filter_of(arguments: argparse.Namespace) -> JobFilter:
    """What the options choose; empty where they choose nothing."""
    now = times.now()
    known: dict[str, Any] = {
        "state": arguments.state,
        "model": arguments.model,
        "tags": arguments.tag,
        "error": arguments.error,
        "since": times.ago(arguments.since, now) if arguments.since else None,
        "until": times.ago(arguments.until, now) if arguments.until else None,
        "sync": arguments.sync,
    }
    return cast("JobFilter", {name: value for name, value in known.items() if value})


def _list(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.limit < 0:
        raise InvalidRequest("--limit must be 0 (all) or more.")
    with output.Progress("jobs") as progress:
        found: list[Job] = []
        for job in islice(client.jobs(limit=arguments.limit or None, **filter_of(arguments)), arguments.limit or None):
            found.append(job)
            progress.advance()
    if arguments.ids:
        for job in found:
            print(job.id)
    elif arguments.json:
        output.emit_json([dict(job.document) for job in found])
    else:
        rows = [
            (
                job.id,
                job.model,
                job.version,
                job.state,
                _local(job.created_at),
                job.tags,
                job.error.message[:60] if job.error else "",
            )
            for job in found
        ]
        output.emit_table(("ID", "MODEL", "VERSION", "STATE", "ACCEPTED", "TAGS", "ERROR"), rows, "no job")
    return 0


def _show(client: Client, arguments: argparse.Namespace) -> int:
    job = client.job(arguments.id)
    if arguments.json:
        output.emit_json(dict(job.document))
    else:
        show(job)
    return 0


def show(job: Job) -> None:
    """Print what is known of a job, a line each."""
    output.emit_fields(
        (
            ("id", job.id),
            ("model", job.model),
            ("version", job.version),
            ("state", job.state),
            ("phase", job.phase if job.phase != job.state else ""),
            ("ahead", job.position),
            ("starts in", f"about {job.estimated_wait_s:.0f} s" if job.estimated_wait_s is not None else ""),
            ("priority", job.priority),
            ("attempt", job.attempt or None),
            ("tags", job.tags),
            ("accepted", _local(job.created_at)),
            ("not before", _local(job.not_before)),
            ("started", _local(job.started_at)),
            ("ended", _local(job.finished_at)),
            ("deadline", _local(job.deadline_at) if not job.has_ended else ""),
            ("error", f"{job.error.code}: {job.error.message}" if job.error else ""),
        )
    )


def _local(when: datetime | None) -> str:
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}" if when is not None else ""
