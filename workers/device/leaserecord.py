"""The lease's record of one device in NATS: what is read of it, and what became of a write, as events of the lease."""

from collections.abc import Mapping
from typing import Any

import msgspec

from signalbox.bus.client import Bus, Message
from signalbox.program.errors import Ambiguous, SignalboxError, StaleRevision
from signalbox.wire import messages, names, workerdocs
from signalbox.wire.names import Bucket, Header
from workers.lease import effects, events
from workers.lease.events import Event


def is_gone(headers: Mapping[str, str], data: bytes) -> bool:
    """Whether a message of a key-value stream says that its key has been removed."""
    return not data or Header.MARKER_REASON in headers or Header.KV_OPERATION in headers


class LeaseRecord:
    """The record of one device. timeout_s: of one write. log: a logger that names device and worker."""

    def __init__(self, bus: Bus, device: str, *, timeout_s: float, log: Any) -> None:
        self._bus = bus
        self._key = names.key(Bucket.LEASES, names.token(device))
        self._timeout_s = timeout_s
        self._log = log

    def receive(self, message: Message) -> Event | None:
        """What a change of the record means for the lease; None where this program cannot read it."""
        sequence = int(message.headers.get(Header.SEQUENCE, "0"))
        return self._observed(message.headers, message.data, sequence, is_leader=False)

    async def read(self) -> Event:
        """What the leader of the stream holds now."""
        try:
            stored = await self._bus.leader_get(Bucket.LEASES.stream, self._key)
        except SignalboxError:
            return events.ReadFailed()
        if stored is None:
            return events.Observed(None, 0, is_leader=True)
        return self._observed(stored.headers, stored.data, stored.seq, is_leader=True) or events.ReadFailed()

    async def write(self, write: effects.WriteRecord) -> Event:
        """Write the record; what became of that."""
        try:
            revision = await self._bus.write(
                self._key,
                messages.encode(write.record),
                expect=write.expect,
                ttl_s=write.ttl_s,
                timeout_s=self._timeout_s,
            )
        except StaleRevision as error:
            # Without a number another write is in flight and may come to nothing: this one may still be stored.
            return events.WriteRefused() if error.last is not None else events.WriteFailed(is_unsure=False)
        except Ambiguous:
            return events.WriteFailed(is_unsure=True)
        except SignalboxError:
            return events.WriteFailed(is_unsure=False)
        return events.Written(revision)

    def _observed(
        self, headers: Mapping[str, str], data: bytes, revision: int, *, is_leader: bool
    ) -> events.Observed | None:
        if is_gone(headers, data):
            return events.Observed(None, revision, is_leader)
        try:
            record = messages.decode(workerdocs.Lease, data)
        except msgspec.MsgspecError as error:  # perhaps of a newer version: this worker must not overwrite it
            self._log.error("lease.unreadable", revision=revision, error=str(error))
            return None
        return events.Observed(record, revision, is_leader)
