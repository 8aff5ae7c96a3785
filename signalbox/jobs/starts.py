"""Workers that are not there yet: which ones come, when, and why none does. Pure, from what hosts' agents say.

A host's agent starts a worker where one is wanted, and where there is work and no worker at all
(:mod:`signalbox.wire.hosts`). So jobs are accepted without a worker, and it is known what they wait for.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from signalbox.wire.hosts import first_starts, is_failing
from signalbox.wire.scaling import Host, Measured
from signalbox.wire.workerdocs import Device, Worker

_SOON_OVER_S: Final = 0.5
"""A start that is late by less is taken to end now."""


_MOST_MODELS: Final = 64
"""Models, and repositories, of which a host tells figures: those that its workers told last."""
_SHARE: Final = 0.5
"""Of the newest start in the mean."""


class Coming(NamedTuple):
    """A worker that is being started. worker: as it will tell itself. left_s: until it is ready, None = not known.

    is_late: it takes longer than usual.
    """

    worker: Worker
    left_s: float | None
    is_late: bool = False


def coming(hosts: Collection[Host], workers: Collection[Worker], now: float) -> list[Coming]:
    """Workers that come, one of a device. workers: those that are present; where they all drain, or there are none, the
    first host starts one. now: UTC seconds."""
    present = {worker.id for worker in workers}
    started: dict[str, Coming] = {}
    for host in hosts:
        devices = {each.device.id: each.device for each in host.devices}
        for kept in host.workers:
            if kept.state == "starting" and not kept.why and kept.id not in present and kept.device in devices:
                left_s = _left_s(host, kept.since, now)
                is_late = left_s is not None and left_s < -_SOON_OVER_S
                one = Coming(_worker(host, devices[kept.device]), left_s and max(0.0, left_s), is_late)
                started.setdefault(kept.device, one)
    if started or any(worker.state != "draining" for worker in workers):
        return list(started.values())
    first = next(iter(first_starts(hosts, None).items()), None)
    if first is None:
        return []
    host = next(each for each in hosts if each.id == first[0])
    if is_failing(host, first[1].device):
        return []
    device = next(each.device for each in host.devices if each.device.id == first[1].device)
    return [Coming(_worker(host, device), host.measured.start_s or None)]


def may_come(hosts: Iterable[Host]) -> bool:
    """Whether some host would start a worker if there were none, and there was a job."""
    return any(
        not host.is_draining and any(not is_failing(host, each.device.id) for each in host.devices) for host in hosts
    )


def left_s(worker: Worker, hosts: Iterable[Host], now: float) -> float:
    """Seconds until a worker that tells already that it starts is ready; 0 where that is not known."""
    if worker.state != "starting":
        return 0.0
    left = (_left_s(host, kept.since, now) for host in hosts for kept in host.workers if kept.id == worker.id)
    return max((each for each in left if each is not None), default=0.0)


def why_none(hosts: Iterable[Host]) -> str:
    """Why the workers that hosts keep are not up, in the words of the first that says so; empty where none does."""
    return next((kept.why for host in hosts for kept in host.workers if kept.why), "")


def learned(known: Measured, told: Worker) -> Measured:
    """What is known of a host's workers, with what one of them tells now, so that it outlives the worker."""
    return replace(
        known,
        rates=_newest(known.rates, told.rates),
        load_s=_newest(known.load_s, told.load_s),
        load_rate=told.load_rate or known.load_rate,
        fetch_rates=_newest(known.fetch_rates, told.fetch_rates),
    )


def started(known: Measured, start_s: float) -> Measured:
    """What is known with one more start: from that of the process until its worker was ready."""
    mean_s = known.start_s + _SHARE * (start_s - known.start_s) if known.start_s else start_s
    return replace(known, start_s=mean_s)


def _newest(known: Mapping[str, float], told: Mapping[str, float]) -> dict[str, float]:
    """What is told, then what was known beside it."""
    both = {**told, **{name: figure for name, figure in known.items() if name not in told}}
    return dict(islice(both.items(), _MOST_MODELS))


def _left_s(host: Host, since: float, now: float) -> float | None:
    """Below 0 where the start takes longer than usual."""
    return host.measured.start_s - (now - since) if host.measured.start_s and since else None


def _worker(host: Host, device: Device) -> Worker:
    known = host.measured
    return Worker(
        id="",
        boot="",
        host=host.host,
        pid=0,
        state="starting",
        device=device,
        started_at=0.0,
        beat_at=0.0,
        rates=known.rates,
        load_s=known.load_s,
        load_rate=known.load_rate,
        fetch_rates=known.fetch_rates,
    )
