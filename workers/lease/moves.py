"""What a lease is told and what it asks for: the events and effects of :mod:`workers.lease.machine`."""

from dataclasses import dataclass
from enum import StrEnum

from signalbox.wire import messages

# -- what happens ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Observed:
    """The record at ``revision``, by event or by a read of the leader. ``record`` is ``None`` where it
    was deleted or has expired; the revision is then the marker's, or 0 where nothing is left."""

    record: messages.Lease | None
    revision: int
    is_leader: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """Our write was stored."""

    revision: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Our write lost: the revision is not the one it expected."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Our write was not stored, or (``is_unsure``) may still be."""

    is_unsure: bool


class Read(StrEnum):
    """Both an effect and a failed read's name."""

    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Locked:
    """The guard has the flock; ``floor`` is the highest token ever used under it."""

    floor: int


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The guard has no flock (any more); the runner is outside, or dead."""

    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class Entered:
    """The runner is inside the device under ``token``."""

    token: int


@dataclass(frozen=True, slots=True)
class RunnerReady:
    """A runner is there, outside the device."""


@dataclass(frozen=True, slots=True)
class RunnerDied:
    """There is none."""


@dataclass(frozen=True, slots=True)
class GuardGone:
    """The guard ended: the runner is dead and the flock free."""


@dataclass(frozen=True, slots=True)
class Dirty:
    """The device must not be entered now: somebody we do not know is using it, or our token cannot be kept."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the worker wants. ``None`` leaves a wish as it is."""

    is_wanted: bool | None = None
    is_allowed: bool | None = None
    is_idle: bool | None = None


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
    | Refused
    | Failed
    | Read
    | Locked
    | Unlocked
    | Entered
    | RunnerReady
    | RunnerDied
    | GuardGone
    | Dirty
    | Wish
    | ReleaseAsked
    | YieldAsked
    | Tick
)


# -- what to do about it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Publish ``record`` expecting ``expect``; answer with Written, Refused or Failed."""

    record: messages.Lease
    expect: int
    ttl_s: int | None


@dataclass(frozen=True, slots=True)
class ReadLeader:
    """Read the record from the leader; answer with Observed(is_leader) or Read.FAILED."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Guard: take the flock, now or when it is free."""


@dataclass(frozen=True, slots=True)
class Unlock:
    """Guard: give the flock back; no runner is inside."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Guard: let the runner in."""

    token: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Deadline:
    """Guard: the lease is good until then."""

    at: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Guard: runner out, flock free."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Guard: kill the runner, flock free."""


@dataclass(frozen=True, slots=True)
class Gained:
    """Worker: the device is yours."""

    token: int


@dataclass(frozen=True, slots=True)
class AskYield:
    """Worker: finish the batch and release."""


@dataclass(frozen=True, slots=True)
class AtRisk:
    """Worker: no heartbeat was acknowledged for half the time there is; begin nothing new."""


@dataclass(frozen=True, slots=True)
class OutOfRisk:
    """Worker: one was, so go on."""


@dataclass(frozen=True, slots=True)
class NoFlock:
    """Worker: the flock did not come free in time; the device will be left alone for a while."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Worker: the device is not yours any more; ``why`` is empty after a release that you asked for."""

    why: str


Effect = (
    Write
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
