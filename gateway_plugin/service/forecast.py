"""Estimates when a waiting job starts, from presence and its place in the queue. Pure.

Everything that a device does before the job counts: what its runner does now, the jobs its worker has pulled and not
begun, and the queue. A load ahead of need does not count: runs go on beside it. An unknown time is None. So is a time
of zero, since a job that has not started is not said to start now: None also stands for a job with nothing before it.
Workers of older versions, which do not say what they do, count as idle.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from signalbox.wire.messages import Model, Residency, Worker

_IN_MEMORY: Final = frozenset({"ready", "spare"})


class _Outlook(NamedTuple):
    """One device and a model. free_s: until it comes to the model's jobs. pulled: those pulled and not begun.

    rate: jobs of the model a second, 0 = unknown.
    """

    free_s: float
    pulled: int
    rate: float

    def after_s(self, jobs: int) -> float | None:
        """Seconds until it has taken so many jobs of the model and comes to the next one; None = not known."""
        if not jobs:
            return self.free_s
        return self.free_s + jobs / self.rate if self.rate else None


def starts_in(model: Model, version: int, workers: Iterable[Worker], ahead: int | None, now: float) -> float | None:
    """Seconds until a job starts, above 0; None where that is not known, or nothing is before it.

    workers: at the model's homes, see :meth:`LiveWorkers.serving`. ahead: jobs before it in the queue; None when a
    worker has pulled it already. now: UTC seconds.
    """
    holders = _holders(workers)
    if ahead is None:
        return _pulled(model, version, [w for w in holders if w.waiting.get(model.name)], now)
    outlooks = [o for w in holders if (o := _outlook(model, version, w, now)) is not None]
    known = sorted((at_s, o.rate) for o in outlooks if (at_s := o.after_s(o.pulled)) is not None)
    if not ahead:
        return known[0][0] or None if known else None
    rated = [(at_s, rate) for at_s, rate in known if rate]
    return _shared(rated, ahead) or None if rated else None


def in_front(model: str, workers: Iterable[Worker], *, is_pulled: bool) -> str:
    """What the device that a job waits for does for others, in words; empty where one is idle or it is not known."""
    holders = [w for w in _holders(workers) if not is_pulled or w.waiting.get(model)]
    runs = [w.run for w in holders if w.run is not None and not w.run.is_ahead]
    if not runs or len(runs) < len(holders):
        return ""
    run = runs[0]
    if run.activity == "loading":
        return f"while {run.model} is loaded"
    return f"behind a run of {run.model}" if is_pulled or run.model != model else ""


def _holders(workers: Iterable[Worker]) -> list[Worker]:
    """The workers that hold their device: two may share one, and the other's runner does nothing."""
    return [worker for worker in workers if worker.token]


def _pulled(model: Model, version: int, workers: Iterable[Worker], now: float) -> float | None:
    """Seconds until a pulled job starts. Which worker has it, and in which order, is unknown: the latest counts."""
    starts_s = [0.0]
    for worker in workers:
        outlook = _outlook(model, version, worker, now)
        if outlook is None:
            return None
        start_s = outlook.after_s(outlook.pulled - 1)
        if start_s is None:
            return None
        starts_s.append(start_s)
    return max(starts_s) or None


def _outlook(model: Model, version: int, worker: Worker, now: float) -> _Outlook | None:
    """The outlook of a worker's device; None where it first does something of unknown length."""
    free_s = _left_s(worker, now)
    if free_s is None or not _is_at_hand(model.name, version, worker):
        return None
    for name, count in worker.waiting.items():
        if name == model.name:
            continue
        rate = worker.rates.get(name, 0.0)
        if not rate:
            return None
        free_s += count / rate
    own = worker.waiting.get(model.name, 0)
    return _Outlook(free_s, own, worker.rates.get(model.name, 0.0))


def _left_s(worker: Worker, now: float) -> float | None:
    """Seconds until the runner has done what it does; a run that is late is taken to last as long again."""
    run = worker.run
    if run is None or run.is_ahead:
        return 0.0
    if not run.expected_s:
        return None
    been_s = max(0.0, worker.beat_at - run.since)
    left_s = run.expected_s - been_s if been_s < run.expected_s else been_s
    return max(0.0, left_s - (now - worker.beat_at))


def _is_at_hand(model: str, version: int, worker: Worker) -> bool:
    """Whether the version is in memory, or will be once the load has ended that holds up the runner."""
    run = worker.run
    is_loading = run is not None and run.activity == "loading" and not run.is_ahead

    def counts(resident: Residency) -> bool:
        return resident.state in _IN_MEMORY or (is_loading and resident.state == "loading")

    return any((r.model, r.version) == (model, version) and counts(r) for r in worker.models)


def _shared(devices: Sequence[tuple[float, float]], jobs: int) -> float:
    """Seconds until devices, each from an instant on and at a rate, have taken so many jobs. Sorted by instant."""
    done = rate = at_s = 0.0
    for free_s, more in devices:
        if rate and done + rate * (free_s - at_s) >= jobs:
            break
        done += rate * (free_s - at_s)
        rate, at_s = rate + more, free_s
    return at_s + (jobs - done) / rate
