"""Estimates when a waiting job starts, from presence and its place in the queue. Pure.

Everything that a device does before the job counts: what its runner does now, the jobs its worker has pulled and not
begun, and the queue. A load ahead of need does not count: runs go on beside it. An unknown time is None. So is a time
of zero, since a job that has not started is not said to start now: None also stands for a job with nothing before it.
A run or load that takes longer than usual ends at an unknown time: where that matters no time is told, and the reason
is. So an estimate does not rise because a run goes on. What is not in memory has to be fetched and loaded first
(:mod:`signalbox.jobs.coldstart`), where its device is held by nobody else; where there is no worker, one has to start
before (:mod:`signalbox.jobs.starts`).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from signalbox.jobs.coldstart import ColdStart, cold_start
from signalbox.jobs.starts import Coming, coming, left_s
from signalbox.wire.modeldocs import Model
from signalbox.wire.scaling import Host
from signalbox.wire.workerdocs import Residency, Worker

_IN_MEMORY: Final = frozenset({"ready", "spare"})
_UNCERTAIN: Final = frozenset({"failed", "loading"})
"""Of these it is not known when, or whether, they can run; see :func:`_is_at_hand`."""
_SOON_OVER_S: Final = 0.5
"""A run that is late by less is taken to end now: runs differ a little, and how long they usually take is a mean."""
_ALIKE: Final = 1.1
"""Estimates that differ by less are the same."""


class Forecast(NamedTuple):
    """wait_s: until the job starts, above 0; None where that is not known, or nothing is before it.

    is_late: it is not known because a run or load in front takes longer than usual.
    """

    wait_s: float | None = None
    is_late: bool = False


class _Outlook(NamedTuple):
    """One device and a model. free_s: until it comes to the model's jobs. pulled: those pulled and not begun.

    rate: jobs of the model a second, 0 = unknown. is_late: what it does takes longer than usual, and ``free_s`` is at
    least so long.
    """

    free_s: float
    pulled: int
    rate: float
    is_late: bool = False

    def after_s(self, jobs: int) -> float | None:
        """Seconds until it has taken so many jobs of the model and comes to the next one; None = not known."""
        if not jobs:
            return self.free_s
        return self.free_s + jobs / self.rate if self.rate else None


def starts_in(
    model: Model,
    version: int,
    workers: Collection[Worker],
    ahead: int | None,
    now: float,
    *,
    fleet: Collection[Worker] = (),
    hosts: Collection[Host] = (),
) -> Forecast:
    """When a job starts.

    workers: at the model's homes, see :func:`signalbox.jobs.waiting.serving`. ahead: jobs before it in the queue; None
    when a worker has pulled it already. now: UTC seconds. fleet: all workers that there are, by whose figures it is
    known how long a fetch and a load take. hosts: that start workers.
    """
    if ahead is None:
        return _pulled(model, version, [w for w in _holders(workers) if w.waiting.get(model.name)], now, fleet)
    found = [_outlook(model, version, w, now, fleet, left_s(w, hosts, now)) for w in _able(workers, fleet)]
    if not workers:
        found = [_start(model, version, one, fleet, now) for one in coming(hosts, fleet, now)]
    outlooks = [o for o in found if o is not None]
    wait_s = _wait_s([o for o in outlooks if not o.is_late], ahead)
    if all(not o.is_late for o in outlooks):
        return Forecast(wait_s or None)
    at_best_s = _wait_s(outlooks, ahead)
    if wait_s is None or at_best_s is None or wait_s > at_best_s * _ALIKE:
        return Forecast(is_late=True)
    return Forecast(wait_s or None)


def _wait_s(outlooks: Iterable[_Outlook], ahead: int) -> float | None:
    """Seconds until these devices have taken so many jobs and one of them comes to the next; None = not known."""
    known = sorted((at_s, o.rate) for o in outlooks if (at_s := o.after_s(o.pulled)) is not None)
    if not ahead:
        return known[0][0] if known else None
    rated = [(at_s, rate) for at_s, rate in known if rate]
    return _shared(rated, ahead) if rated else None


def in_front(model: str, workers: Iterable[Worker], *, is_pulled: bool) -> str:
    """What the device that a job waits for does for others, in words; empty where one is idle or it is not known."""
    holders = [w for w in _holders(workers) if not is_pulled or w.waiting.get(model)]
    runs = [w.run for w in holders if w.run is not None and not w.run.is_beside]
    if not runs or len(runs) < len(holders):
        return ""
    run = runs[0]
    late = " that takes longer than usual" if any(_is_late(w) for w in holders if w.run is run) else ""
    if run.activity == "loading":
        return f"behind the load of {run.model}{late}" if late else f"while {run.model} is loaded"
    return f"behind a run of {run.model}{late}" if late or is_pulled or run.model != model else ""


def _holders(workers: Iterable[Worker]) -> list[Worker]:
    """The workers that hold their device: two may share one, and the other's runner does nothing."""
    return [worker for worker in workers if worker.token]


def _able(workers: Iterable[Worker], fleet: Iterable[Worker]) -> list[Worker]:
    """The workers that hold their device, or may take it at once."""
    held = {worker.device.id for worker in fleet if worker.token}
    return [worker for worker in workers if worker.token or worker.device.id not in held]


def _pulled(model: Model, version: int, workers: Iterable[Worker], now: float, fleet: Collection[Worker]) -> Forecast:
    """When a pulled job starts. Which worker has it, and in which order, is unknown: the latest counts."""
    starts_s = [0.0]
    for worker in workers:
        outlook = _outlook(model, version, worker, now, fleet)
        if outlook is not None and outlook.is_late:
            return Forecast(is_late=True)
        start_s = outlook.after_s(outlook.pulled - 1) if outlook is not None else None
        if start_s is None:
            return Forecast()
        starts_s.append(start_s)
    return Forecast(max(starts_s) or None)


def _start(model: Model, version: int, one: Coming, fleet: Collection[Worker], now: float) -> _Outlook | None:
    """The outlook of a worker that is being started; None where it is not known when it is ready."""
    if one.left_s is None:
        return None
    outlook = _outlook(model, version, one.worker, now, fleet, one.left_s)
    return outlook._replace(is_late=one.is_late) if outlook is not None else None


def _outlook(
    model: Model, version: int, worker: Worker, now: float, fleet: Collection[Worker], start_s: float = 0.0
) -> _Outlook | None:
    """The outlook of a worker's device; None where it first does something of unknown length. start_s: until it is
    ready."""
    free_s = _left_s(worker, now)
    cold = _cold(model, version, worker, fleet)
    if free_s is None or cold is None:
        return None
    for name, count in worker.waiting.items():
        if name == model.name:
            continue
        rate = worker.rates.get(name, 0.0)
        if not rate:
            return None
        free_s += count / rate
    free_s = max(free_s, start_s, cold.files_s) + cold.load_s
    own = worker.waiting.get(model.name, 0)
    return _Outlook(free_s, own, worker.rates.get(model.name, 0.0), _is_late(worker))


def _left_s(worker: Worker, now: float) -> float | None:
    """Seconds until the runner has done what it does, if that takes as long as usual; None where that is not known."""
    run = worker.run
    if run is None or run.is_beside:
        return 0.0
    if not run.expected_s:
        return None
    return max(0.0, run.since + run.expected_s - max(now, worker.beat_at))


def _is_late(worker: Worker) -> bool:
    """Whether what the runner does takes longer than usual. At the last heartbeat: it may have ended since."""
    run = worker.run
    if run is None or run.is_beside or not run.expected_s:
        return False
    return worker.beat_at - run.since > run.expected_s + _SOON_OVER_S


def _cold(model: Model, version: int, worker: Worker, fleet: Collection[Worker]) -> ColdStart | None:
    """What has to be done before a job of the version can run; None where it is not known."""
    if _is_at_hand(model.name, version, worker):
        return ColdStart(0.0, 0.0)
    states = {r.state for r in worker.models if (r.model, r.version) == (model.name, version)}
    found = next((each for each in model.versions if each.version == version), None)
    return cold_start(model.name, found, worker, fleet) if found is not None and not states & _UNCERTAIN else None


def _is_at_hand(model: str, version: int, worker: Worker) -> bool:
    """Whether the version is in memory, or will be once the load has ended that holds up the runner."""
    run = worker.run
    is_loading = run is not None and run.activity == "loading" and not run.is_beside

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
