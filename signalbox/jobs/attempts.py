"""What a worker knows of one job that it has in flight: the job, and the last known content of its record."""

import time
from collections.abc import Callable

from signalbox.wire.messages import Job, Record


def boottime() -> float:
    """CLOCK_BOOTTIME in seconds: it counts what a machine slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Attempt:
    """One job in flight, with what is known of its record.

    record, revision: what its subject in ``STATE`` holds as far as we know (None, 0: nothing).
    written_at: when we last wrote it, UTC seconds, 0 = never.
    claim: turns a record into one that is claimed, for a claim that was not written by itself.
    known_at: when, on :func:`boottime`, the job was last known not to have ended and been forgotten.
    stages: what its time goes into (:mod:`signalbox.jobs.times`), from its pull on.
    """

    __slots__ = (
        "claim",
        "is_alone",
        "is_cancelled",
        "job",
        "known_at",
        "record",
        "revision",
        "stages",
        "written_at",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.known_at = boottime()
        self.stages: list[tuple[str, float]] = []
        self.record: Record | None = None
        self.revision = 0
        self.written_at = 0.0
        self.claim: Callable[[Record], Record] | None = None
        self.is_alone = False
        self.is_cancelled = False

    @property
    def deadline_at(self) -> float:
        """By which it is to begin, as far as we know, in UTC seconds: its owner may move it while the job waits."""
        return self.job.deadline_at if self.record is None else self.record.deadline_at
