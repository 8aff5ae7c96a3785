"""Counts the bytes of results that this worker has stored recently, by account; presence carries them to gateways.

Recently is the least time that results are kept. Where room is short the reconciler keeps them no longer, so that
these are the bytes that an account's results take. A worker that restarts has forgotten them; the bound for all
accounts holds anyway.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

MOST_REPORTED: Final = 32
"""Accounts that presence names: those with most. Any other has stored less than a 32nd of all."""
_PARTS: Final = 20
"""The window moves in so many steps."""


class StoredBytes:
    """Bytes by account within ``kept_s``. clock: seconds that never go back."""

    def __init__(self, *, kept_s: float, clock: Callable[[], float]) -> None:
        self._part_s = kept_s / _PARTS
        self._clock = clock
        self._parts: deque[tuple[float, Counter[str]]] = deque()
        self._sum: Counter[str] = Counter()

    def add(self, account: str, size: int) -> None:
        """Note that a result of ``size`` bytes was stored."""
        self._forget()
        now = self._clock()
        if not self._parts or now - self._parts[-1][0] >= self._part_s:
            self._parts.append((now, Counter()))
        self._parts[-1][1][account] += size
        self._sum[account] += size

    def most(self) -> dict[str, int]:
        """The accounts that have stored most, with their bytes."""
        self._forget()
        return dict(heapq.nlargest(MOST_REPORTED, self._sum.items(), key=lambda item: item[1]))

    def _forget(self) -> None:
        before = self._clock() - (_PARTS + 1) * self._part_s
        while self._parts and self._parts[0][0] <= before:
            for account, size in self._parts.popleft()[1].items():
                self._sum[account] -= size
                if not self._sum[account]:
                    del self._sum[account]
