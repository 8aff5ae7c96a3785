"""The events of a lease: what :mod:`workers.lease.machine` is told."""

from dataclasses import dataclass

from signalbox.wire import workerdocs


@dataclass(frozen=True, slots=True)
class Observed:
    """The lease's record as it is at ``revision``, by an event or by a read of the leader.

    record: ``None`` where it was deleted or has expired; the revision is then the marker's, or 0 where nothing is left.
    """

    record: workerdocs.Lease | None
    revision: int
    is_leader: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """This worker's write was stored."""

    revision: int


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """This worker's write was refused: the revision is not the one that it expected."""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """This worker's write was not stored, or (``is_unsure``) may still be."""

    is_unsure: bool


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The leader did not answer a read."""


@dataclass(frozen=True, slots=True)
class Locked:
    """The guard holds the flock; ``floor`` is the highest token ever used under it."""

    floor: int


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The guard does not hold the flock; the runner is outside the device, or dead."""

    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class Entered:
    """The runner is inside the device under ``token``."""

    token: int


@dataclass(frozen=True, slots=True)
class RunnerReady:
    """A runner has started and is outside the device."""


@dataclass(frozen=True, slots=True)
class RunnerDied:
    """The runner has ended."""


@dataclass(frozen=True, slots=True)
class GuardGone:
    """The guard ended: the runner is dead and the flock free."""


@dataclass(frozen=True, slots=True)
class DeviceUnusable:
    """The device must not be entered now: a foreign process uses it, or the token cannot be stored on this host."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What the worker intends with the lease; ``None`` leaves a value as it is.

    is_wanted: take a ticket while another worker holds it. is_allowed: it may be taken at all.
    """

    is_wanted: bool | None = None
    is_allowed: bool | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """No job has been in flight since then, so that the lease may be handed over early."""

    since: float


@dataclass(frozen=True, slots=True)
class ReleaseAsked:
    """The worker is done with its batch and gives the lease up."""


@dataclass(frozen=True, slots=True)
class YieldAsked:
    """An operator asks for the lease."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, or the wait queue has changed."""


Event = (
    Observed
    | Written
    | WriteRefused
    | WriteFailed
    | ReadFailed
    | Locked
    | Unlocked
    | Entered
    | RunnerReady
    | RunnerDied
    | GuardGone
    | DeviceUnusable
    | Intent
    | Idle
    | ReleaseAsked
    | YieldAsked
    | Tick
)
