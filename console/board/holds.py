"""The log of a device's lease: who held it, under which token, how long, and how that ended. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from signalbox.wire.workerdocs import Lease

HELD: Final = "holds it"
RELEASED: Final = "released"
RAN_OUT: Final = "ran out"
LOST: Final = "taken over"


class Hold(NamedTuple):
    """One hold of a device. renewals: of its lease. until: None = it still stands.

    end: ``holds it``, ``released``, ``handed to WORKER``, ``ran out`` (nobody renewed it) or ``taken over`` (another
    worker has it, and no end was written).
    """

    token: int
    holder: str
    since: float
    until: float | None
    renewals: int
    end: str

    @property
    def is_lost(self) -> bool:
        """Whether the holder did not let it go itself."""
        return self.end in {RAN_OUT, LOST}


def log(writes: Iterable[tuple[float, Lease | None, int]]) -> list[Hold]:
    """The holds that stored writes ``(at, lease or None, revision)``, oldest first, tell of; the newest first."""
    found: list[Hold] = []
    now: Hold | None = None
    for at, lease, revision in writes:
        if lease is None:
            _end(found, now, at, RAN_OUT)
            now = None
        elif lease.state != "HELD":
            _end(found, now, at, f"handed to {lease.next}" if lease.next else RELEASED)
            now = None
        elif now is not None and now.token == (lease.token or revision):
            now = now._replace(renewals=lease.beats)
        else:
            _end(found, now, at, LOST)
            now = Hold(lease.token or revision, lease.owner, lease.since or at, None, lease.beats, HELD)
    if now is not None:
        found.append(now)
    return found[::-1]


def _end(found: list[Hold], hold: Hold | None, at: float, end: str) -> None:
    if hold is not None:
        found.append(hold._replace(until=at, end=end))
