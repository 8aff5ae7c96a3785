"""Rate and quota of keys, counted as one Tyk gateway counts them.

Rate: a window per session id and ``last_updated``, opened by its first call, in memory. Quota: a
counter per session id that refused calls raise too; it lives as long as the process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway_plugin.hooks.session import Session

_SWEEP_AT: Final = 10_000


class Rate(NamedTuple):
    """State of a key's window after a call. reset_at: UTC unix seconds. left_s: until the window has passed."""

    is_allowed: bool
    limit: int
    remaining: int
    reset_at: int
    left_s: float


class Quota(NamedTuple):
    """What a call found of a key's quota. left_s: until it renews, None = never. renews_at: UTC unix seconds."""

    is_allowed: bool
    left_s: float | None
    remaining: int
    renews_at: int


@dataclass(slots=True)
class _Window:
    capacity: int
    remaining: int
    ends: float
    reset_at: int


@dataclass(slots=True)
class _Counter:
    calls: int
    ends: float | None
    renews_at: int


class KeyLimits:
    """Both limits of all keys. monotonic, wall: clocks in seconds."""

    def __init__(self, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._windows: dict[tuple[str, str], _Window] = {}
        self._counters: dict[str, _Counter] = {}
        self._sweep_at = _SWEEP_AT

    def take(self, session_id: str, session: Session) -> Rate | None:
        """Charges one call to the key's rate; None when it has none."""
        if session.rate <= 0:
            return None
        now = self._monotonic()
        name = (session_id, session.last_updated)
        window = self._windows.get(name)
        if window is None:
            self._sweep(now)
            capacity = max(1, int(session.rate))
            window = self._windows[name] = _Window(capacity, capacity, float("-inf"), 0)
        if now > window.ends:
            per_s = int(session.per)
            window.ends = now + per_s
            window.reset_at = int(self._wall() + per_s)
            window.remaining = window.capacity
        is_allowed = window.remaining > 0
        if is_allowed:
            window.remaining -= 1
        return Rate(is_allowed, int(session.rate), window.remaining, window.reset_at, window.ends - now)

    def spend(self, session_id: str, session: Session) -> Quota | None:
        """Charges one call to the key's quota; None when it has none.

        A call that is refused, the quota being used up before, is counted all the same.
        """
        if session.quota_max <= 0:
            return None
        now = self._monotonic()
        counter = self._counters.get(session_id)
        if counter is None or (counter.ends is not None and now >= counter.ends):
            self._sweep(now)
            renewal_s = session.quota_renewal_rate
            ends = now + renewal_s if renewal_s > 0 else None
            counter = _Counter(0, ends, int(self._wall()) + max(0, renewal_s))
            self._counters[session_id] = counter
        counter.calls += 1
        left_s = None if counter.ends is None else counter.ends - now
        left = session.quota_max - counter.calls
        return Quota(left >= 0, left_s, max(0, left), counter.renews_at)

    def _sweep(self, now: float) -> None:
        """Forgets windows and quotas that have run out, once the tables have doubled since the last time."""
        if len(self._windows) + len(self._counters) < self._sweep_at:
            return
        self._windows = {k: w for k, w in self._windows.items() if now <= w.ends}
        self._counters = {k: c for k, c in self._counters.items() if c.ends is None or now < c.ends}
        self._sweep_at = max(_SWEEP_AT, 2 * (len(self._windows) + len(self._counters)))
