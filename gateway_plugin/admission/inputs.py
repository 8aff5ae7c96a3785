"""Bounds the stored inputs of jobs that have not ended: 429 above an account's bound, 503 above the bound of all.

Only inputs above the inline limit are stored apart; the others lie in their jobs' messages and cost nothing here.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway_plugin.admission.holdings import Holdings
from gateway_plugin.admission.refusals import REFUSED
from signalbox.bus.client import Bus
from signalbox.jobs import inputs
from signalbox.program.errors import LimitExceeded, QueueFull, Unavailable
from signalbox.wire import names
from signalbox.wire.names import Stream

FILLED: Final = 0.95
"""Part of ``INPUTS`` that is given away. The rest takes what several gateways let in at the same moment."""
SHARE: Final = 4
"""An account may take one part in so many, unless its own share or the setting says otherwise."""
_STALE_S: Final = 1.0
_RETRY_AFTER_S: Final = 5.0
_UNLIMITED: Final = 1 << 62


class StoredInputs:
    """Admits inputs that are to be stored. most_bytes: of one account; 0 = a quarter of all the room there is."""

    def __init__(self, bus: Bus, *, most_bytes: int) -> None:
        self._bus = bus
        self._most = most_bytes
        self._limit = 0
        self._accounts = Holdings(self._measure, stale_s=_STALE_S)
        self._all = Holdings(self._measure_all, stale_s=_STALE_S)

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._accounts.close()
        await self._all.close()

    @asynccontextmanager
    async def room(self, account: str, size: int, share: int = 0) -> AsyncIterator[None]:
        """Store an input of ``size`` bytes inside this. share: bytes the account may take; 0 = what every account may.

        Raises :class:`LimitExceeded` where the account has its share, and :class:`Unavailable` where all is taken, also
        where the stream itself says so.
        """
        if not self._limit:
            await self._measure_all("")
        whole = await self._all.enter("", size, int(self._limit * FILLED))
        if whole is None:
            raise _full()
        most = share or self._most or self._limit // SHARE
        try:
            mine = await self._accounts.enter(account, size, most)
            if mine is None:
                raise self._past_share(account, size, most)
        except BaseException:
            whole.refused(size)
            raise
        try:
            yield
        except QueueFull as error:  # other gateways took the rest
            raise _full() from error
        finally:
            mine.left(size)
            whole.left(size)

    def _past_share(self, account: str, size: int, most: int) -> LimitExceeded:
        REFUSED.labels("account_inputs").inc()
        return LimitExceeded(
            f"Stored inputs of your jobs that have not ended take {self._accounts.held(account)} bytes; with these "
            f"{size} they would pass the {most} that your account may take. Nothing was accepted: wait until jobs have "
            "ended, or cancel some.",
            retry_after_s=_RETRY_AFTER_S,
            bound="stored_bytes",
            limit_bytes=most,
        )

    async def _measure(self, account: str) -> int:
        info = await self._bus.request_json(
            f"$JS.API.STREAM.INFO.{Stream.INPUTS}", {"subjects_filter": names.job_inputs(account)}
        )
        return inputs.held(info["state"].get("subjects") or {})

    async def _measure_all(self, _: str) -> int:
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}")
        limit = info["config"].get("max_bytes", -1)
        self._limit = limit if limit > 0 else _UNLIMITED
        return int(info["state"]["bytes"])


def _full() -> Unavailable:
    REFUSED.labels("inputs").inc()
    return Unavailable(
        "All room for the inputs of waiting jobs is taken. Nothing was accepted: try again when jobs have ended.",
        retry_after_s=_RETRY_AFTER_S,
        bound="stored_bytes",
    )
