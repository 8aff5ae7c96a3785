"""Keeps each account's share of ``RESULTS``: takes an account's oldest ends out where it has more."""

from collections.abc import Awaitable, Callable
from typing import Final

from gateway_plugin.outbound import gauges
from gateway_plugin.outbound.shares import AccountShares
from signalbox.bus.client import Bus
from signalbox.jobs.cursor import StreamCursor
from signalbox.program import log
from signalbox.wire import outboundnames
from signalbox.wire.names import Stream
from signalbox.wire.outboundnames import OUTBOUND

_SWEEP: Final = 5_000
_SIZE: Final = "Nats-Msg-Size"
"""Header of a delivery without its body."""


class ResultsRoom:
    """What ``RESULTS`` holds of each account. account_bytes: the most of one. before: called before anything goes."""

    def __init__(self, bus: Bus, account_bytes: int, *, before: Callable[[], Awaitable[None]]) -> None:
        self._bus = bus
        self._most = account_bytes
        self._before = before
        self._shares = AccountShares(account_bytes)

    async def measure(self) -> None:
        """Count what is there, by the headers of all messages. Raises as :meth:`StreamCursor.open`."""
        self._shares = AccountShares(self._most)
        cursor = StreamCursor(self._bus, Stream.RESULTS, OUTBOUND, is_watched=False)
        try:
            left = await cursor.open(1)
            while left > 0 and (found := await cursor.sweep(_SWEEP)):
                for delivery in found:
                    self.took(delivery.subject, delivery.seq, int(delivery.headers.get(_SIZE, "0")))
                left -= len(found)
        finally:
            await cursor.close()
            await cursor.forget()

    def took(self, subject: str, seq: int, size: int) -> None:
        """A message of this size was stored."""
        self._shares.add(outboundnames.account_of_result(subject), seq, size + len(subject))

    async def keep_shares(self) -> None:
        """Have the oldest ends of accounts go that have more than their share. Raises as :meth:`Bus.request_json`."""
        if next(self._shares.above(), None) is None:
            return
        await self._forget_aged()
        for account in self._shares.above():
            await self._evict(account, "share")

    async def make(self) -> bool:
        """Make room in a full stream, of the account that has the most; False where nobody has anything.

        Raises as :meth:`Bus.request_json`.
        """
        await self._forget_aged()
        account = self._shares.largest()
        if account is None:
            return False
        await self._evict(account, "full")
        return True

    async def _evict(self, account: str, reason: str) -> None:
        await self._before()
        upto = self._shares.give_up(account)
        which = {"filter": outboundnames.results(account), "seq": upto + 1}
        answer = await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.RESULTS}", which)
        gauges.ENDS_EVICTED.labels(reason).inc(answer.get("purged", 0))
        log.warning("outbound.ends_evicted", account=account, reason=reason, ends=answer.get("purged", 0))

    async def _forget_aged(self) -> None:
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.RESULTS}")
        self._shares.forget_below(int(info["state"]["first_seq"]))
