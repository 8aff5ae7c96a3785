"""``signalbox jobs cancel | delete | retry | change``."""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from signalbox.client import Acted, Client, Job
from signalbox.ops import output
from signalbox.ops.calls import joblists, place
from signalbox.program.errors import InvalidRequest


class _Act(NamedTuple):
    """One act. one: on a single job, gives the job after it, or nothing. all: on many."""

    name: str
    does: str
    done: str
    one: Callable[[Client, str], Job | None]
    all: Callable[..., Acted]


_ACTS: Final = (
    _Act("cancel", "End jobs that are queued or run.", "cancelled", Client.cancel, Client.cancel_all),
    _Act(
        "delete",
        "Erase ended jobs with their inputs and results; it cannot be undone.",
        "deleted",
        Client.delete,
        Client.delete_all,
    ),
    _Act(
        "retry",
        "Run the inputs of jobs that were given up again, as new jobs.",
        "queued anew",
        Client.retry,
        Client.retry_all,
    ),
)


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the acts."""
    for act in _ACTS:
        one = acts.add_parser(
            act.name,
            help=act.does,
            description=f"{act.does} Name them, or choose them as `signalbox jobs list` does, to see them first.",
            epilog=(
                f"Examples:\n\n  signalbox jobs {act.name} $JOB\n  signalbox jobs {act.name} --tag run:7\n"
                f"  signalbox jobs list --tag run:7 --ids | signalbox jobs {act.name} -"
            ),
        )
        one.add_argument("ids", nargs="*", metavar="ID", help="Ids; -: those on standard input, a line each.")
        joblists.add_filter(one)
        one.add_argument("--all", action="store_true", help="All of the account's, where nothing chooses some.")
        one.set_defaults(job_act=_run, act_on=act)
        yield one
    yield _change_parser(acts)


def _change_parser(acts: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = acts.add_parser(
        "change",
        help="Raise the priority or move the deadline of a job that waits.",
        epilog=(
            "Examples:\n\n  signalbox jobs change $JOB --priority hi\n  signalbox jobs change $JOB --deadline 600"
            "\n\nRefused once a worker has the job."
        ),
    )
    one.add_argument("id", metavar="ID")
    one.add_argument("--priority", choices=("hi", "mid", "lo"), help="A higher one; hi needs a key with jobs:urgent.")
    one.add_argument("--deadline", type=float, metavar="S", help="Seconds from now.")
    one.set_defaults(job_act=_change)
    return one


def _run(client: Client, arguments: argparse.Namespace) -> int:
    act: _Act = arguments.act_on
    ids = [line.strip() for line in sys.stdin if line.strip()] if arguments.ids == ["-"] else arguments.ids
    chosen = joblists.filter_of(arguments)
    if arguments.ids and (chosen or arguments.all):
        raise InvalidRequest("Name jobs, or choose them by options: not both.")
    if arguments.ids and not ids:
        return _tell_many(act, Acted(0, 0), arguments)
    if len(ids) == 1:
        with output.Progress(f"{act.name} {ids[0]}"):
            job = act.one(client, ids[0])
        return _tell_one(act, job, ids[0], arguments)
    if not arguments.ids and not chosen and not arguments.all:
        raise InvalidRequest("Name jobs, choose them (--state, --model, --tag, --since ...), or say --all.")
    with output.Progress(act.name):
        acted = act.all(client, ids) if arguments.ids else act.all(client, **chosen)
    return _tell_many(act, acted, arguments)


def _tell_one(act: _Act, job: Job | None, job_id: str, arguments: argparse.Namespace) -> int:
    if arguments.json:
        output.emit_json(dict(job.document) if job is not None else {"id": job_id, "state": act.done})
    elif job is None:
        print(f"{job_id} {act.done}")
    elif job.id == job_id:
        print(f"{job_id} {job.state if job.has_ended else 'is asked to end'}")
    else:
        print(job.id)
    return 0


def _tell_many(act: _Act, acted: Acted, arguments: argparse.Namespace) -> int:
    if arguments.json:
        refusals = [{"id": one.id, "code": one.code, "detail": one.detail} for one in acted.refusals]
        output.emit_json({"done": acted.done, "refused": acted.refused, "refusals": refusals})
    else:
        print(f"{acted.done} {act.done}, {acted.refused} refused")
        for one in acted.refusals:
            output.note(f"{one.id}: {one.detail}")
        if acted.refused > len(acted.refusals):
            output.note(f"and {acted.refused - len(acted.refusals)} more")
    return place.FAILED if acted.refused else 0


def _change(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.priority is None and arguments.deadline is None:
        raise InvalidRequest("Say what changes: --priority, --deadline.")
    job = client.change(arguments.id, priority=arguments.priority, deadline_s=arguments.deadline)
    if arguments.json:
        output.emit_json(dict(job.document))
    else:
        joblists.show(job)
    return 0
