"""Documents of a fleet that scales by itself: what a model asks for, what is wanted of it, and what hosts there are."""

from typing import Annotated, Literal

from msgspec import Meta, field

from signalbox.wire.messages import Doc
from signalbox.wire.workerdocs import Device

HostWorkerState = Literal["starting", "ready", "draining", "waiting"]
"""Of a process that a host's agent keeps; it waits between an end and the next start."""


class Scaling(Doc, frozen=True, kw_only=True):
    """How many devices a model has by its load, under the queue product's names (S4.P15).

    is_on: else its ``replicas`` are as an operator set them. min, max: devices; a model has one at least, so that a
    min of 0 says that no worker is kept for it while nobody calls it. backlog: jobs that wait for each device
    (``queue[backlog]``), and items of queues that are no jobs yet, 0 = not looked at. target_wait_s: longest that the
    oldest job shall wait, 0 = not looked at; of several the one that asks for most counts. tolerance: part of a target
    by which it may be missed without a change.
    up_window_s, down_window_s: the smallest, and the largest, of what was recommended within them is what counts.
    zero_grace_s: without a call until no worker is kept for it. activation: devices that its first job brings.
    """

    is_on: bool = False
    min: Annotated[int, Meta(ge=0, le=1000)] = 1
    max: Annotated[int, Meta(ge=1, le=1000)] = 1
    backlog: Annotated[float, Meta(ge=0)] = 10.0
    target_wait_s: Annotated[float, Meta(ge=0)] = 0.0
    tolerance: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    up_window_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    down_window_s: Annotated[float, Meta(ge=0, le=3600)] = 300.0
    zero_grace_s: Annotated[float, Meta(ge=0, le=86_400)] = 600.0
    activation: Annotated[int, Meta(ge=1, le=1000)] = 1


class ModelScale(Doc, frozen=True, kw_only=True):
    """What one model has and shall have. wanted: devices; needed: those that workers are kept for. reason: in words."""

    wanted: int
    needed: int = 0
    reason: str = ""


class ClassScale(Doc, frozen=True, kw_only=True):
    """What one class of device has and shall have. wanted: workers' devices, after ``most`` (0 = no bound) was heeded;
    asked: before. reason: in words, ``no capacity`` among them where less is wanted than is asked for."""

    wanted: int
    asked: int = 0
    actual: int = 0
    most: int = 0
    reason: str = ""


class Scale(Doc, frozen=True, kw_only=True):
    """KV ``desired``, key ``scale``: what is wanted of the fleet. Written by the controller, carried out by hosts.

    classes, models: by name. Hosts that hear nothing of the controller keep to the last one.
    """

    classes: dict[str, ClassScale] = field(default_factory=dict)
    models: dict[str, ModelScale] = field(default_factory=dict)
    at: float = 0.0


class HostWorker(Doc, frozen=True, kw_only=True):
    """A worker that a host's agent keeps. state: of its process; restarts: since the agent began. why: it is not up.

    since: instant at which its present process was started; 0 = there is none.
    """

    id: str
    device: str
    state: HostWorkerState = "starting"
    since: float = 0.0
    pid: int = 0
    restarts: int = 0
    why: str = ""


class HostDevice(Doc, frozen=True, kw_only=True):
    """A device of a host. class_: the class that it counts in; its own name where the operator gave it none."""

    device: Device
    class_: str = ""


class Measured(Doc, frozen=True, kw_only=True):
    """What a host's workers have told of their work, kept while none runs; 0 and what is left out = not known.

    start_s: mean seconds from the start of a worker's process until it is ready. rates, load_s, load_rate, fetch_rates:
    as a worker tells them (:class:`signalbox.wire.workerdocs.Worker`).
    """

    start_s: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)
    load_s: dict[str, float] = field(default_factory=dict)
    load_rate: float = 0.0
    fetch_rates: dict[str, float] = field(default_factory=dict)


class Host(Doc, frozen=True, kw_only=True):
    """KV ``hosts``: presence of a host's agent, with a TTL. Key: :func:`names.token` of its id.

    host: as its workers say it (host and boot id). wanted: devices with workers, by class, that it keeps up.
    is_draining: an operator has asked it to hand over. disk_bytes, disk_free_bytes: where its cache lies; cache_bytes:
    what that holds. software: version of Signalbox.
    """

    id: str
    host: str
    devices: tuple[HostDevice, ...] = ()
    workers: tuple[HostWorker, ...] = ()
    wanted: dict[str, int] = field(default_factory=dict)
    measured: Measured = Measured()
    driver: str = ""
    cuda: str = ""
    disk_bytes: int = 0
    disk_free_bytes: int = 0
    cache_bytes: int = 0
    software: str = ""
    is_draining: bool = False
    started_at: float = 0.0
    beat_at: float = 0.0
