"""Which records of ended jobs wait until the outbound program has sent their ends out.

It keeps in ``duties`` how far it is and whether anybody is subscribed. What it has not passed stays for a time of its
own, also where records go sooner otherwise; but no job is refused for it: in a ``STATE`` that is nearly too full to
accept more, records wait no longer than all others. What goes unsent is counted, and said in ``duties``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import Newer, decode, encode
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import EndsLost, FollowerPosition
from workers.host import gauges

HELD_TO: Final = 0.7
"""Of ``STATE``: fuller, no record waits. From 0.8 on the gateways accept nothing more."""
_POSITION: Final = names.key(Bucket.DUTIES, outboundnames.FOLLOWER_POSITION)
_LOST: Final = names.key(Bucket.DUTIES, outboundnames.ENDS_LOST)


class Held(NamedTuple):
    """Records from ``seq`` on that were stored after ``since`` (UTC seconds) wait. is_watched: by anybody."""

    seq: int = 0
    since: float = float("inf")
    is_watched: bool = False

    def holds(self, seq: int, at: float) -> bool:
        """Whether a record waits that lies at ``seq`` and was stored then."""
        return self.is_watched and seq >= self.seq and at >= self.since

    def loses(self, seq: int) -> bool:
        """Whether a record that goes now was not sent out, though somebody may be subscribed to it."""
        return self.is_watched and seq >= self.seq


class HeldEnds:
    """held_s: how long a record waits at most, from its writing on. clock: UTC seconds."""

    def __init__(self, bus: Bus, *, held_s: float, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._held_s = held_s
        self._clock = clock
        self._lost = 0

    async def look(self, info: Mapping[str, Any]) -> Held:
        """What waits now. info: of ``STATE``, as the server told it. Raises as :meth:`Bus.leader_get`."""
        stored = await self._bus.leader_get(Bucket.DUTIES.stream, _POSITION)
        if stored is None:
            return Held()
        try:
            position = decode(FollowerPosition, stored.data)
        except Newer:
            position = FollowerPosition(is_watched=True)  # how far it is, only a newer program knows
        except msgspec.MsgspecError:
            position = FollowerPosition()
        most = info["config"].get("max_bytes", -1)
        is_full = 0 < HELD_TO * most < info["state"]["bytes"]
        return Held(
            seq=position.state_seq if position.created == info["created"] else 0,
            since=float("inf") if is_full else self._clock() - self._held_s,
            is_watched=position.is_watched,
        )

    def lost(self, records: int) -> None:
        """So many records went unsent."""
        gauges.ENDS_UNSENT.inc(records)
        self._lost += records

    async def tell(self) -> None:
        """Say in ``duties`` what was lost, if anything was since the last time. Raises as :meth:`Bus.write`."""
        if not self._lost:
            return
        stored = await self._bus.leader_get(Bucket.DUTIES.stream, _LOST)
        known = EndsLost()
        if stored is not None:
            try:
                known = decode(EndsLost, stored.data)
            except msgspec.MsgspecError:
                known = EndsLost()
        now = self._clock()
        told = replace(known, records=known.records + self._lost, at=now)
        await self._bus.write(_LOST, encode(told), expect=stored.seq if stored is not None else 0)
        log.error("reconciler.ends_lost", records=self._lost)
        self._lost = 0
