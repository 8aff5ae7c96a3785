"""One batch from its start to its end, and what may come of a job in it."""

import asyncio
from collections.abc import Sequence

from signalbox.program.errors import SignalboxError
from workers.residency.activity import Request
from workers.serving.inflight import InFlightJob
from workers.serving.shadows import Sample
from workers.statistics import batchlimits

Outcome = bytes | SignalboxError
"""The frame of a job's result, or why there is none."""


class BatchRun:
    """One batch from its start to its end. over: set when it has no slot any more. part: the jobs that run now.

    is_long: jobs are left to other workers until it is over. generation: of the runner that it runs in; the death of
    another one is not its fault. tries: runs that ended and are no job's fault. request: the last one for a run.
    failure: what became of the load of its version, where none of its jobs can run. sample: of it, to be run in shadow.
    """

    __slots__ = (
        "failure",
        "generation",
        "is_long",
        "jobs",
        "key",
        "limit_key",
        "model",
        "over",
        "part",
        "request",
        "sample",
        "tries",
        "version",
    )

    def __init__(self, jobs: list[InFlightJob], failure: Exception | None = None) -> None:
        first = jobs[0].job
        self.jobs = jobs
        self.model = first.model
        self.version = first.version
        self.key = (first.model, first.version)
        self.limit_key: batchlimits.Key = (first.model, first.version, first.batch_key)
        self.over = asyncio.Event()
        self.part: Sequence[InFlightJob] = ()
        self.is_long = False
        self.generation = 0
        self.tries = 0
        self.request: Request | None = None
        self.failure = failure
        self.sample: Sample | None = None

    @property
    def was_beside_load(self) -> bool:
        """Whether the load of a version was under way during its last run."""
        return self.request is not None and self.request.is_beside_load


def rows_of(part: Sequence[InFlightJob]) -> int:
    """The rows of some jobs together."""
    rows = 0
    for held in part:
        rows += held.job.rows
    return rows


def halves(part: list[InFlightJob]) -> list[list[InFlightJob]]:
    """Two parts of about the same size."""
    middle = len(part) // 2
    return [part[:middle], part[middle:]]
