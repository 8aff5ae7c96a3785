"""Tracks what each account holds of a bounded resource: as measured last, plus what this gateway let in since.

A measurement is a question to NATS. It is asked when the last one is old, or when an eighth of the bound was let in
since, or when the sum says that an account is full: no account is refused on the sum alone. Several gateways do not
see what the others let in after their measurements. So together they may pass a bound by an eighth of it for each
gateway but one, and by what they write at that moment.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from signalbox.program.tasks import SingleFlight

_PART: Final = 8
_FULL_FRESH_S: Final = 0.2
_MOST_KNOWN: Final = 10_000

Measure = Callable[[str], Coroutine[Any, Any, int]]
"""Measures what an account holds."""


class Holding:
    """What one account holds. since: let in after the last measurement began. open: let in, perhaps not stored yet."""

    __slots__ = ("measured", "measured_at", "open", "since")

    def __init__(self) -> None:
        self.measured = 0
        self.measured_at = float("-inf")
        self.since = 0
        self.open = 0

    @property
    def most(self) -> int:
        """What it holds at most, if nothing was removed since the last measurement."""
        return self.measured + self.since

    def left(self, amount: int) -> None:
        """End the in-flight state of ``amount``: it is stored now, or never will be."""
        self.open -= amount

    def refused(self, amount: int) -> None:
        """Take back ``amount``, which was refused elsewhere before any of it was stored."""
        self.open -= amount
        self.since -= amount


class Holdings:
    """Holdings of all accounts, as one gateway knows them. stale_s: how long a measurement is good.

    full_fresh_s: an account that is full is measured again so often at most.
    """

    def __init__(self, measure: Measure, *, stale_s: float, full_fresh_s: float = _FULL_FRESH_S) -> None:
        self._measure = measure
        self._stale_s = stale_s
        self._full_fresh_s = full_fresh_s
        self._loop = asyncio.get_running_loop()
        self._known: dict[str, Holding] = {}
        self._measuring: SingleFlight[Holding, None] = SingleFlight()

    async def enter(self, account: str, amount: int, most: int) -> Holding | None:
        """Let ``amount`` in and return the holding, to be told when it :meth:`~Holding.left`; None above ``most``.

        Raises as the measurement does.
        """
        holding = self._known.get(account)
        if holding is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()  # each is measured when it is next asked for
            holding = self._known[account] = Holding()
        age_s = self._loop.time() - holding.measured_at
        is_stale = age_s > self._stale_s or holding.since > most // _PART
        is_full = holding.most + amount > most
        # While one caller measures an account that is known and not full, the others need not wait for it.
        is_asked = holding in self._measuring and age_s != float("inf")
        if (is_full and age_s > self._full_fresh_s) or (is_stale and not is_asked):
            await self._measuring.ask(holding, partial(self._measured, account, holding))
            is_full = holding.most + amount > most
        if is_full:
            return None
        holding.since += amount
        holding.open += amount
        return holding

    def held(self, account: str) -> int:
        """What an account holds, as far as is known here."""
        holding = self._known.get(account)
        return holding.most if holding is not None else 0

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._measuring.close()

    async def _measured(self, account: str, holding: Holding) -> None:
        holding.since = holding.open  # whether the answer counts these is not known: they count
        holding.measured = await self._measure(account)
        holding.measured_at = self._loop.time()
