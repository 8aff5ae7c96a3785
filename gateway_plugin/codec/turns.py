"""Decides which account's large body is decoded next: accounts share a few processes by time, not by bodies.

An account is charged the time that its bodies take there, refused ones too, and the account that was charged least
goes next: start-time fair queueing (P. Goyal, H. Vin and H. Cheng, 1996) with the charge known afterwards. An account
holds no more turns than are still free, so that a newcomer finds one at once. For one event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from signalbox.program.errors import LimitExceeded, SignalboxError, Unavailable

_RETRY_AFTER_S: Final = 2.0


class _Account:
    """One account's queue. held: turns it has. start: of its next turn, in seconds that were charged to it."""

    __slots__ = ("held", "start", "waiting")

    def __init__(self, start: float) -> None:
        self.start = start
        self.held = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Turns:
    """places: turns at once. monotonic: seconds."""

    def __init__(self, places: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._free = places
        self._monotonic = monotonic
        self._accounts: dict[str, _Account] = {}
        self._now = 0.0

    def holds(self, account: str) -> bool:
        """Whether an account has a turn now."""
        found = self._accounts.get(account)
        return found is not None and found.held > 0

    def late(self, account: str, *, what: str, bound: str) -> SignalboxError:
        """The error for a turn that did not come in time. what: takes turns, in words. bound: names it in metrics."""
        if self.holds(account):
            return LimitExceeded(
                f"Too many {what} of your account at once; send fewer at a time, or smaller ones.",
                retry_after_s=_RETRY_AFTER_S,
                bound=bound,
            )
        return Unavailable(f"Too many {what} at once.", retry_after_s=_RETRY_AFTER_S, bound=bound)

    @asynccontextmanager
    async def turn(self, account: str, timeout_s: float) -> AsyncIterator[None]:
        """A turn, once it is this account's. Raises :class:`TimeoutError` if that takes longer than ``timeout_s``."""
        mine = await self._take(account, timeout_s)
        began = self._monotonic()
        try:
            yield
        finally:
            mine.start += self._monotonic() - began
            self._give_back(mine)

    async def _take(self, name: str, timeout_s: float) -> _Account:
        mine = self._accounts.get(name)
        if mine is None:
            mine = self._accounts[name] = _Account(self._now)
        granted = asyncio.get_running_loop().create_future()
        mine.waiting.append(granted)
        self._grant()
        try:
            async with asyncio.timeout(timeout_s):
                await granted
        except BaseException:
            if granted.cancelled():
                with suppress(ValueError):  # _grant has removed it already
                    mine.waiting.remove(granted)
                self._grant()
            else:
                self._give_back(mine)
            raise
        return mine

    def _give_back(self, mine: _Account) -> None:
        mine.held -= 1
        self._free += 1
        self._grant()

    def _grant(self) -> None:
        """Give free turns to the waiting accounts that were charged least."""
        while ready := [
            account for account in self._accounts.values() if account.waiting and account.held < self._free
        ]:
            account = min(ready, key=lambda one: one.start)
            granted = account.waiting.popleft()
            if granted.cancelled():
                continue
            self._now = max(self._now, account.start)
            account.held += 1
            self._free -= 1
            granted.set_result(None)
        self._forget()

    def _forget(self) -> None:
        """Forget idle accounts that were charged no more than the rest, and every account once all are idle."""
        busy = any(account.held or account.waiting for account in self._accounts.values())
        self._accounts = {
            name: account
            for name, account in self._accounts.items()
            if account.held or account.waiting or (busy and account.start > self._now)
        }
