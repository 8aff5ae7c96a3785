"""The leader lease of a task that one process does for all: one key with a TTL, written by compare-and-set.

Nothing here excludes anybody from anything: two processes may believe for a moment that the duty is theirs.
What is done under it must be safe done twice (every write under it is a compare-and-set).
"""

import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError, StaleRevision
from signalbox.wire import names
from signalbox.wire.duties import LeaderLeaseRecord
from signalbox.wire.events import is_removal
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Bucket


class LeaderLease:
    """One process's claim to one duty. ttl_s: it is free so long after its last write. clock: UTC seconds."""

    def __init__(
        self, bus: Bus, name: str, *, owner: str, boot: str, ttl_s: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._key = names.key(Bucket.DUTIES, name)
        self._owner = owner
        self._boot = boot
        self._ttl_s = ttl_s
        self._clock = clock
        self._revision = 0

    async def take(self) -> bool:
        """Whether the duty is ours from now on; False where another has it. One read, one write.

        Raises :class:`Unavailable`, :class:`Ambiguous`: then it is not ours this time.
        """
        found = await self._bus.leader_get(Bucket.DUTIES.stream, self._key)
        revision = found.seq if found is not None else 0
        duty = LeaderLeaseRecord(owner="", boot="")
        if found is not None and not is_removal(found.headers):
            try:
                duty = decode(LeaderLeaseRecord, found.data)
            except msgspec.MsgspecError:  # a newer program's: its TTL will free it
                return False
        is_ours = (duty.owner, duty.boot) == (self._owner, self._boot)
        if duty.owner and not is_ours:
            return False
        if not is_ours:
            duty = replace(duty, owner=self._owner, boot=self._boot, since=self._clock())
        return await self._write(duty, revision)

    async def give_up(self) -> None:
        """Release the lease at once. Best effort."""
        try:
            await self._write(LeaderLeaseRecord(owner="", boot=""), self._revision)
        except SignalboxError:
            return  # its TTL ends it

    async def _write(self, duty: LeaderLeaseRecord, expect: int) -> bool:
        try:
            self._revision = await self._bus.write(self._key, encode(duty), expect=expect, ttl_s=self._ttl_s)
        except StaleRevision:
            return False
        return True
