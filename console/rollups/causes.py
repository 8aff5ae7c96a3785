"""Why a version is slow: what its jobs spent their time on, the most first, each with what helps."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from console.rollups.reading import VersionFigures
from signalbox.jobs import times

LEAST: Final = 0.1
"""Share of the time below which something is no cause."""
MANY_RETRIED: Final = 0.01
"""Share of the jobs."""


class Cause(NamedTuple):
    """share: of the time of all jobs, or of the jobs where they are retried. text: what it is, and what helps."""

    share: float
    name: str
    text: str


_CAUSES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "queue": ((times.QUEUE,), "Jobs wait until a worker has a place for them: more replicas, or more devices, help."),
    "device": ((times.LEASE,), "Jobs wait for a worker to get its device, which another worker holds."),
    "other models": (
        (times.OTHER_MODEL,),
        "Jobs wait behind runs and loads of other models on the same devices: more devices help, or fewer models.",
    ),
    "own runs": (
        (times.BATCH,),
        "Jobs wait behind runs of this model: more replicas help, or joining requests into one run.",
    ),
    "loads": (
        (times.FETCH, times.RUNNER, times.VERIFY, times.LOAD, times.WARM),
        "The version is brought to a device, loaded and warmed up while jobs wait: pin it, so that it stays in memory.",
    ),
    "retries": (
        (times.RETRY, times.UNKNOWN),
        "Attempts that were given up: see the jobs that failed, and the workers.",
    ),
    "run": ((times.RUN,), "The model itself computes: larger batches or a faster device help, more replicas do not."),
    "inputs": ((times.INPUT,), "Large inputs are read from the store before the run."),
    "results": ((times.COMMIT,), "Results wait for their batch, and are written: they are large, or NATS is slow."),
}


def of(figures: VersionFigures) -> list[Cause]:
    """What took a tenth of the time or more, the most first; then whether many jobs took several attempts."""
    parts = figures.sums.parts
    whole = sum(ms for name, ms in parts.items() if name != times.DELAY)
    if not whole:
        return []
    shares = [
        Cause(sum(parts.get(part, 0.0) for part in names) / whole, name, text)
        for name, (names, text) in _CAUSES.items()
    ]
    found = sorted((one for one in shares if one.share >= LEAST), key=lambda one: -one.share)
    retried = figures.sums.retried / figures.jobs
    if retried >= MANY_RETRIED:
        found.append(Cause(retried, "more than one attempt", "So many of the jobs took more than one attempt."))
    return found
