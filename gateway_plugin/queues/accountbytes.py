"""How many bytes are in the queues of each account, as the outbound program has told."""

import time
from collections import defaultdict
from typing import Final

from gateway_plugin.queues.store import REFUSED
from gateway_plugin.queues.tables import QueueTables
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program.errors import LimitExceeded
from signalbox.wire import names
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Doc
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import SIDES, Side
from signalbox.wire.queues import Queue

_RETRY_AFTER_S: Final = 2.0
"""States are told so often."""
_UNTOLD_S: Final = 10.0
"""What was put here counts so long where no state comes: then nobody tells either what was taken."""


class _Size(Doc, frozen=True, kw_only=True):
    size: int = 0


class _Sizes(Doc, frozen=True, kw_only=True):
    """What is read of a :class:`signalbox.wire.queues.QueueState`."""

    source: _Size = _Size()
    sink: _Size = _Size()


class _Untold:
    """What this program has put into a queue of which no state has come since."""

    __slots__ = ("sizes", "until")

    def __init__(self) -> None:
        self.until = time.monotonic() + _UNTOLD_S
        self.sizes: dict[Side, int] = dict.fromkeys(SIDES, 0)


class AccountBytes:
    """Bounds them. bus: of the main account. tables: whose queues they are. ``await start()`` once.

    A put asks nobody: what is known are the states that the outbound program has told, and what was put here since. So
    a bound is passed by what other plugins take until the next state.
    """

    def __init__(self, bus: Bus, tables: QueueTables) -> None:
        self._tables = tables
        self._states = Table(bus, Bucket.QUEUE_STATES, _Sizes)
        self._known: dict[str, dict[Side, int]] | None = None
        self._untold: dict[str, dict[str, _Untold]] = defaultdict(dict)
        self._states.on_change(lambda key, *_: self._told(key))
        tables.on_change(lambda _: self._forget())

    async def start(self) -> None:
        """Read the states and follow them from then on. Raises :class:`Unavailable`."""
        await self._states.start()

    async def close(self) -> None:
        """Stop following. Idempotent."""
        await self._states.close()

    def require(self, key: ApiKey, side: Side, size: int) -> None:
        """Raise :class:`LimitExceeded` where a put of so many bytes takes the key's account above what it may have.

        Into a sink it is refused only where sinks alone have so many, so that a full source does not keep its consumers
        from putting what they have made of it.
        """
        most = key.share.queue_bytes
        if not most:
            return
        held = self._of(key.account_id)
        found = held["sink"] if side == "sink" else sum(held.values())
        if found + size > most:
            REFUSED.labels("account_bytes").inc()
            what = "sinks of your account's queues" if side == "sink" else "queues of your account"
            raise LimitExceeded(
                f"The {what} hold {found} bytes; with these {size} they would pass the {most} that your account may "
                "have in them. Nothing was stored: commit or delete items, or ask an operator for a larger share.",
                retry_after_s=_RETRY_AFTER_S,
                bound="queue_bytes",
                limit_bytes=most,
            )

    def count(self, queue: Queue, side: Side, size: int) -> None:
        """Count what was just put."""
        untold = self._untold[queue.account_id].setdefault(names.token(queue.name), _Untold())
        untold.sizes[side] += size

    def _of(self, account: str) -> dict[Side, int]:
        held = dict(self._known_of(account))
        now = time.monotonic()
        for key, untold in list(self._untold[account].items()):
            if untold.until < now:
                del self._untold[account][key]
                continue
            for side, size in untold.sizes.items():
                held[side] += size
        return held

    def _known_of(self, account: str) -> dict[Side, int]:
        if self._known is None:
            self._known = defaultdict(lambda: dict.fromkeys(SIDES, 0))
            for key, state in self._states.items().items():
                queue = self._tables.find(names.untoken(key))
                if queue is not None:
                    self._known[queue.account_id]["source"] += state.source.size
                    self._known[queue.account_id]["sink"] += state.sink.size
        return self._known[account]

    def _told(self, key: str) -> None:
        for untold in self._untold.values():
            untold.pop(key, None)
        self._forget()

    def _forget(self) -> None:
        """Count anew when next asked: of many changes in a row once."""
        self._known = None
