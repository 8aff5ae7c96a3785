"""Rate and quota of keys where callers come past no gateway, counted as one Tyk gateway counts them.

Rate: a window per key and its ``updated_at``, opened by its first call, in memory. Quota: a counter per key that
refused calls raise too; it lives as long as the process.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from signalbox.program.errors import LimitExceeded
from signalbox.wire.keydocs import ApiKey

_SWEEP_AT: Final = 10_000


class Rate(NamedTuple):
    """State of a key's window after a call. reset_at: UTC unix seconds. left_s: until the window has passed."""

    is_allowed: bool
    limit: int
    remaining: int
    reset_at: int
    left_s: float

    @property
    def headers(self) -> dict[str, str]:
        """What an answer says of it."""
        return {
            "X-Ratelimit-Limit": str(self.limit),
            "X-Ratelimit-Remaining": str(self.remaining),
            "X-Ratelimit-Reset": str(self.reset_at),
        }


class Quota(NamedTuple):
    """What a call found of a key's quota. left_s: until it renews, None = never."""

    is_allowed: bool
    left_s: float | None


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


class KeyLimits:
    """Both limits of all keys: one for all listeners of a process. monotonic, wall: clocks in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._windows: dict[tuple[str, float], _Window] = {}
        self._counters: dict[str, _Counter] = {}
        self._sweep_at = _SWEEP_AT

    def charge(self, key: ApiKey) -> Rate | None:
        """Charge one call to a good key; returns its rate after that, None where it has none.

        Raises :class:`LimitExceeded` with the time of the next try, the rate among its facts. A call that is refused
        for its rate spends no quota.
        """
        rate = self.take(key)
        if rate is not None and not rate.is_allowed:
            raise LimitExceeded(
                "The rate limit of this API key is reached; slow down.",
                retry_after_s=rate.left_s,
                bound="rate",
                rate=rate,
            )
        quota = self.spend(key)
        if quota is not None and not quota.is_allowed:
            raise LimitExceeded(
                "The quota of this API key is used up; it renews with its next window.",
                retry_after_s=quota.left_s,
                bound="quota",
                rate=rate,
            )
        return rate

    def take(self, key: ApiKey) -> Rate | None:
        """Charges one call to the key's rate; None when it has none."""
        if key.rate <= 0:
            return None
        now = self._monotonic()
        name = (key.id, key.updated_at)
        window = self._windows.get(name)
        if window is None:
            self._sweep(now)
            capacity = max(1, int(key.rate))
            window = self._windows[name] = _Window(capacity, capacity, float("-inf"), 0)
        if now > window.ends:
            per_s = max(1, int(key.per_s))
            window.ends = now + per_s
            window.reset_at = int(self._wall() + per_s)
            window.remaining = window.capacity
        is_allowed = window.remaining > 0
        if is_allowed:
            window.remaining -= 1
        return Rate(is_allowed, int(key.rate), window.remaining, window.reset_at, window.ends - now)

    def spend(self, key: ApiKey) -> Quota | None:
        """Charges one call to the key's quota; None when it has none.

        A call that is refused, the quota being used up before, is counted all the same.
        """
        if not key.quota:
            return None
        now = self._monotonic()
        counter = self._counters.get(key.id)
        if counter is None or (counter.ends is not None and now >= counter.ends):
            self._sweep(now)
            counter = _Counter(0, now + key.quota_window_s if key.quota_window_s > 0 else None)
            self._counters[key.id] = counter
        counter.calls += 1
        left_s = None if counter.ends is None else counter.ends - now
        return Quota(counter.calls <= key.quota, left_s)

    def _sweep(self, now: float) -> None:
        """Forgets windows and quotas that have run out, once the tables have doubled since the last time."""
        if len(self._windows) + len(self._counters) < self._sweep_at:
            return
        self._windows = {k: w for k, w in self._windows.items() if now <= w.ends}
        self._counters = {k: c for k, c in self._counters.items() if c.ends is None or now < c.ends}
        self._sweep_at = max(_SWEEP_AT, 2 * (len(self._windows) + len(self._counters)))
