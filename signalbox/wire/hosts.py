"""Which devices of the hosts have workers, and which host starts the first of them. Pure: every host gets the same.

Devices of one class are ranked as those of a model are (:func:`signalbox.wire.placement.homes`): by a rendezvous hash,
spread over hosts first. So another number of wanted devices, or another host, moves only those that come or go.
"""

import math
import signal
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from signalbox.wire.duties import ReconcilerPosition
from signalbox.wire.placement import homes
from signalbox.wire.scaling import Host, Scale

NEXT_S: Final = 1.0
"""Seconds by which each host waits longer than the one before it, until it starts the first worker in its place."""

LEAVE: Final = signal.SIGURG
STAY: Final = signal.SIGCONT
"""Have a worker leave, or stay after all: an agent's signals to its child. One that does not know them ignores them."""

SETTLED_S: Final = 5.0
"""Seconds from a first worker's being ready until the controller has seen what it was started for."""


class FirstStart(NamedTuple):
    """What a host does about the first worker. after_s: from the moment at which there was work and no worker."""

    device: str
    after_s: float


def kept_devices(scale: Scale | None, hosts: Iterable[Host]) -> frozenset[str]:
    """Ids of the devices that shall have workers: the first of each class, as many as are wanted of it.

    scale: None = nobody has decided yet, and each device has workers; of a class that it does not name none has. hosts:
    all that are present; those that drain count for nothing. A device whose workers cannot start is kept and takes
    nobody's place, so that the next one has workers too until it has them.
    """
    present = [host for host in hosts if not host.is_draining]
    if scale is None:
        return frozenset(each.device.id for host in present for each in host.devices)
    failing = {each.device.id for host in present for each in host.devices if is_failing(host, each.device.id)}
    kept: set[str] = set()
    for name, class_ in scale.classes.items():
        left = class_.wanted
        for device in _ranked(name, present):
            if left <= 0:
                break
            kept.add(device)
            left -= device not in failing
    return frozenset(kept)


def first_start(host: str, hosts: Iterable[Host], scale: Scale | None) -> FirstStart | None:
    """What the host with that id does when there is work and no worker of any host: it starts one at this device, after
    so long, unless a worker appears before. None where it has no device, drains, or is not among ``hosts``.
    """
    return first_starts(hosts, scale).get(host)


def first_starts(hosts: Iterable[Host], scale: Scale | None) -> dict[str, FirstStart]:
    """:func:`first_start` of each host that has one, by its id, in the order of their turns.

    The first device is the first that :func:`kept_devices` names once one is wanted of the first class that has any.
    """
    present = [each for each in hosts if not each.is_draining]
    owners = {each.device.id: one.id for one in present for each in one.devices}
    first: dict[str, FirstStart] = {}
    for name in _classes(scale, present):
        for device in _ranked(name, present):
            first.setdefault(owners[device], FirstStart(device, len(first) * NEXT_S))
    return first


def needed_at(
    position: ReconcilerPosition, scale: Scale | None, *, newest_job_at: float | None, last_record: int
) -> float:
    """From when on (UTC seconds) a worker is needed, where there is none; infinite = nothing waits for one.

    position: what the last worker that reconciled has left. newest_job_at: when the newest message of the queue was
    stored, None = it is empty; jobs that the controller has seen, and wants no worker for, need one for their deadlines
    only. last_record: sequence of the last record, 0 = there is none; one that nobody has read may be of any job.
    """
    is_seen = newest_job_at is None or (scale is not None and scale.at > newest_job_at + SETTLED_S)
    if not is_seen or last_record >= max(position.read_to, 1):
        return 0.0
    return position.due_at or math.inf


def is_overruled(ready_at: float | None, scale: Scale | None) -> bool:
    """Whether a first worker stays only where :func:`kept_devices` names its device, as any other.

    ready_at: when it was (UTC seconds), None = not yet. Until the controller has decided with its work in sight it
    stays, and where there is no controller for good.
    """
    return ready_at is not None and scale is not None and scale.at > ready_at + SETTLED_S


def _classes(scale: Scale | None, hosts: Iterable[Host]) -> Iterator[str]:
    """Names of all classes, in the order in which the controller fills them; then those that it does not know."""
    known = dict.fromkeys(scale.classes if scale is not None else ())
    yield from known
    yield from sorted({each.class_ for host in hosts for each in host.devices} - known.keys())


def _ranked(class_: str, hosts: Iterable[Host]) -> tuple[str, ...]:
    devices = {each.device.id: host.id for host in hosts for each in host.devices if each.class_ == class_}
    return homes(class_, 0, devices, len(devices))


def is_failing(host: Host, device: str) -> bool:
    """Whether the host's agent tells of each worker that it keeps at the device why it is not up."""
    own = [each for each in host.workers if each.device == device]
    return bool(own) and all(each.why and each.state in {"starting", "waiting"} for each in own)
