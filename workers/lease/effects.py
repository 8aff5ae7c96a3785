"""The effects of a lease: what :mod:`workers.lease.machine` asks the guard, the worker and NATS for."""

from dataclasses import dataclass

from signalbox.wire import workerdocs


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write ``record`` expecting revision ``expect``; the answer is the event Written, WriteRefused or WriteFailed."""

    record: workerdocs.Lease
    expect: int
    ttl_s: int | None


@dataclass(frozen=True, slots=True)
class ReadLeader:
    """Read the record from the leader; the answer is the event Observed(is_leader) or ReadFailed."""


@dataclass(frozen=True, slots=True)
class Lock:
    """To the guard: take the flock, now or when it becomes free."""


@dataclass(frozen=True, slots=True)
class Unlock:
    """To the guard: release the flock; no runner is inside the device."""


@dataclass(frozen=True, slots=True)
class Enter:
    """To the guard: let the runner enter the device."""

    token: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Deadline:
    """To the guard: the lease is valid until ``at``."""

    at: float


@dataclass(frozen=True, slots=True)
class Leave:
    """To the guard: make the runner leave the device, then release the flock."""


@dataclass(frozen=True, slots=True)
class Fence:
    """To the guard: kill the runner, then release the flock."""


@dataclass(frozen=True, slots=True)
class Gained:
    """To the worker: it holds the device."""

    token: int


@dataclass(frozen=True, slots=True)
class AskYield:
    """To the worker: finish the batch and release the lease."""


@dataclass(frozen=True, slots=True)
class AtRisk:
    """To the worker: no heartbeat was acknowledged for half of the fence; begin nothing new."""


@dataclass(frozen=True, slots=True)
class OutOfRisk:
    """To the worker: a heartbeat was acknowledged; go on."""


@dataclass(frozen=True, slots=True)
class NoFlock:
    """To the worker: the flock did not become free in time; the device is left alone for a while."""


@dataclass(frozen=True, slots=True)
class Ended:
    """To the worker: it no longer holds the device; ``why`` is empty after a release that it asked for."""

    why: str


Effect = (
    WriteRecord
    | ReadLeader
    | Lock
    | Unlock
    | Enter
    | Deadline
    | Leave
    | Fence
    | Gained
    | AskYield
    | AtRisk
    | OutOfRisk
    | NoFlock
    | Ended
)
