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
    times: UTC seconds of its phases.
    """

    __slots__ = (
        "claim",
        "is_alone",
        "is_cancelled",
        "job",
        "known_at",
        "record",
        "revision",
        "times",
        "written_at",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.known_at = boottime()
        self.times: dict[str, float] = {}
        self.record: Record | None = None
        self.revision = 0
        self.written_at = 0.0
        self.claim: Callable[[Record], Record] | None = None
        self.is_alone = False
        self.is_cancelled = False

    @property
    def phases(self) -> dict[str, float]:
        """The same in milliseconds from acceptance, never negative: clocks differ."""
        created_at = self.job.created_at
        return {phase: round(max(0.0, at - created_at) * 1000, 2) for phase, at in self.times.items()}
