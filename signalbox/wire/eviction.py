"""In which order loaded versions leave a device when its room is needed, and why. Pure: times are passed in.

Workers decide by it, and the console shows the same order from what they report. What nobody needs there leaves first,
then what was asked for only once, so that a walk over all models pushes out none that is in use; of the rest what is
cheapest to keep away: idle for long, large, and quick to bring back (GreedyDual-Size, Cao and Irani 1997, with the
recency of LRU; the second use is that of LRU-2, O'Neil 1993).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

BURST_S: Final = 10.0
"""Uses within so long count as one: the jobs of one caller."""
AGAIN_S: Final = 3600.0
"""A version that was not used twice within so long counts as asked for once."""
_LEAST_RETURN_S: Final = 0.1
"""Below it what a version costs to bring back makes no difference."""
Key = tuple[str, int]
"""Model name and version."""


class Loaded(NamedTuple):
    """A version in memory. idle_s: since its last use, or its load where it was not used.

    before_s: since the use before the last one, bursts counted once; None = there was none. return_s: what it takes to
    have it again, its fetch included. is_spare: placed elsewhere, or no longer what requests get. is_pinned: by an
    operator. is_used: a run uses it, or it is being loaded. is_waited: jobs wait for it.
    """

    key: Key
    size_bytes: int
    idle_s: float = 0.0
    before_s: float | None = None
    return_s: float = 0.0
    is_spare: bool = False
    is_pinned: bool = False
    is_used: bool = False
    is_waited: bool = False

    @property
    def may_leave(self) -> bool:
        """Whether it leaves for others at all."""
        return not (self.is_used or self.is_pinned)

    @property
    def is_once(self) -> bool:
        """Whether it counts as asked for once, or never."""
        return self.before_s is None or self.before_s > AGAIN_S


class ResidencyUse(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """In presence: what decides when a version leaves the memory (:class:`Loaded`), as a list of numbers.

    idle_s: since its last use, or its load. before_s: since the use before. return_s: what it takes to have it again.
    is_used: a run uses it. is_pinned: it stays, as an operator has said.
    """

    idle_s: float = 0.0
    before_s: float | None = None
    return_s: float = 0.0
    is_used: bool = False
    is_pinned: bool = False


class Leaving(NamedTuple):
    """A version and its turn: 1 leaves next, 0 stays. why: in words."""

    key: Key
    turn: int
    why: str


def order(loaded: Iterable[Loaded]) -> list[Loaded]:
    """Those that may leave, the next one first. What jobs wait for is last."""
    return sorted((one for one in loaded if one.may_leave), key=_rank)


def explain(loaded: Iterable[Loaded]) -> list[Leaving]:
    """What leaves next and why; at last what stays and why."""
    known = list(loaded)
    turns = [Leaving(one.key, turn, _why(one)) for turn, one in enumerate(order(known), 1)]
    return [*turns, *(Leaving(one.key, 0, _why_not(one)) for one in known if not one.may_leave)]


def _rank(one: Loaded) -> tuple[bool, bool, bool, float]:
    return one.is_waited, not one.is_spare, not one.is_once, -_burden(one)


def _burden(one: Loaded) -> float:
    """What keeping it costs for each second that it saves."""
    return one.size_bytes * one.idle_s / max(one.return_s, _LEAST_RETURN_S)


def _why(one: Loaded) -> str:
    weighed = f"idle for {_span(one.idle_s)}, {size(one.size_bytes)}, {_span(one.return_s)} to bring back"
    if one.is_waited:
        return f"jobs wait for it, so it leaves last; {weighed}"
    if one.is_spare:
        return f"placed elsewhere or no longer what requests get; {weighed}"
    if one.is_once:
        return f"not asked for twice within an hour; {weighed}"
    return weighed


def _why_not(one: Loaded) -> str:
    return "stays: in use" if one.is_used else "stays: pinned"


def _span(seconds: float) -> str:
    if seconds < 0.05:
        return "no time"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def size(size_bytes: int) -> str:
    """Bytes as people read them: ``5.8 MiB``."""
    mib = size_bytes / 2**20
    return f"{mib:.1f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"
