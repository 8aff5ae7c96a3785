"""How far the follower is: kept in ``duties``, where the workers that remove records read it too."""

import time
from typing import Final

import msgspec
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import FollowerPosition

KEPT_EVERY_S: Final = 1.0
_KEY: Final = names.key(Bucket.DUTIES, outboundnames.FOLLOWER_POSITION)


class Position:
    """One follower's place in ``STATE``. Another that writes it meanwhile has this one refused."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._revision = 0
        self._kept = FollowerPosition()
        self._seq = 0

    async def read(self) -> FollowerPosition:
        """The position as it is kept. Raises as :meth:`Bus.leader_get`."""
        stored = await self._bus.leader_get(Bucket.DUTIES.stream, _KEY)
        self._revision, self._kept = 0, FollowerPosition()
        if stored is not None:
            self._revision = stored.seq
            try:
                self._kept = decode(FollowerPosition, stored.data)
            except msgspec.MsgspecError:  # a newer program's: records go as if nobody waited for them
                self._kept = FollowerPosition()
        self._seq = self._kept.state_seq
        return self._kept

    def reached(self, seq: int) -> None:
        """Everything below ``seq`` is done."""
        self._seq = max(self._seq, seq)

    def is_past(self, seq: int) -> bool:
        """Whether what lies at ``seq`` is done."""
        return seq < self._seq

    @property
    def is_kept(self) -> bool:
        """Whether what was reached is kept."""
        return self._seq == self._kept.state_seq

    async def begin(self, created: str, seq: int) -> None:
        """Keep that somebody is subscribed, and where the follower begins. Raises as :meth:`Bus.write`."""
        self._seq = seq
        await self._write(FollowerPosition(created=created, state_seq=seq, is_watched=True))

    async def keep(self) -> None:
        """Keep what was reached, unless it is. Raises as :meth:`Bus.write`."""
        if not self.is_kept:
            await self._write(replace(self._kept, state_seq=self._seq))

    async def rest(self) -> None:
        """Keep that nobody is subscribed, unless that is kept. Raises as :meth:`Bus.write`."""
        if self._kept.is_watched or not self._revision:
            await self._write(replace(self._kept, state_seq=self._seq, is_watched=False))

    async def _write(self, position: FollowerPosition) -> None:
        position = replace(position, at=time.time())
        self._revision = await self._bus.write(_KEY, encode(position), expect=self._revision)
        self._kept = position
