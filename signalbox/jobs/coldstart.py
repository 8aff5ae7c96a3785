"""Estimates when a version that is not in a worker's memory can run there: its files come, then it is loaded. Pure.

What is left of a fetch comes at the rate of that fetch, else at the usual one of its repository; a version of which
nothing is told comes as a whole, as if no disk of the host had it. A load takes as long as those of the model usually
do, else as its size says. What the worker has not measured, others of the fleet have.
"""

from collections.abc import Callable, Collection, Iterable
from statistics import fmean
from typing import Final, NamedTuple

from signalbox.jobs.fetches import fetch_of
from signalbox.wire.modeldocs import Version
from signalbox.wire.workerdocs import Worker

_LONGEST_S: Final = 86_400.0
"""A fetch that takes longer at its present rate stands still: when it ends is not known."""


class ColdStart(NamedTuple):
    """files_s: until the files are at the worker, whatever it does meanwhile. load_s: for the load that follows."""

    files_s: float
    load_s: float


def cold_start(model: str, version: Version, worker: Worker, fleet: Collection[Worker]) -> ColdStart | None:
    """Estimate the start of a version at a worker; None where it is not known. fleet: all workers that there are."""
    files_s = _files_s(model, version, worker, fleet)
    load_s = _load_s(model, version, worker, fleet)
    if files_s is None or (load_s is None and not files_s):
        return None
    return ColdStart(files_s, load_s or 0.0)


def _files_s(model: str, version: Version, worker: Worker, fleet: Collection[Worker]) -> float | None:
    fetch = fetch_of(model, version.version, (one for one in fleet if one.host == worker.host))
    if fetch is None and version.path.startswith("/"):
        return 0.0
    if fetch is not None and fetch.fault:
        return None
    left_bytes, rate = version.size_bytes, 0.0
    if fetch is not None:
        left_bytes, rate = (fetch.size_bytes or left_bytes) - fetch.fetched_bytes, fetch.rate
    rate = rate or _measured(worker, fleet, lambda one: one.fetch_rates.get(version.repository, 0.0))
    return left_bytes / rate if left_bytes < rate * _LONGEST_S else None


def _load_s(model: str, version: Version, worker: Worker, fleet: Iterable[Worker]) -> float | None:
    if usual_s := _measured(worker, fleet, lambda one: one.load_s.get(model, 0.0)):
        return usual_s
    rate = _measured(worker, fleet, lambda one: one.load_rate)
    return version.size_bytes / rate if rate else None


def _measured(worker: Worker, fleet: Iterable[Worker], figure: Callable[[Worker], float]) -> float:
    """The worker's own figure, else the mean of those that others tell; 0 = nobody knows."""
    return figure(worker) or fmean([each for one in fleet if (each := figure(one))] or [0.0])
