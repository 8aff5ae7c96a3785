"""The tickets of one device's waiters in NATS: those of the others, as they are announced, and this worker's own."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from signalbox.bus.client import Bus, Message
from signalbox.program.errors import SignalboxError, StaleRevision
from signalbox.wire import messages, names
from signalbox.wire.names import Bucket, Header
from signalbox.wire.workerdocs import Ticket
from workers.device.leaserecord import is_gone
from workers.lease.tickets import DropTicket, OwnTicket, PutTicket, WaitQueue


class WaitingTickets:
    """The wait queue of one device, kept as NATS has it. clock: CLOCK_BOOTTIME in seconds."""

    def __init__(
        self, bus: Bus, device: str, worker: str, own: OwnTicket, *, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        self.queue = WaitQueue()
        self._bus = bus
        self._own = own
        self._pattern = names.key(Bucket.WAITERS, f"{names.token(device)}.*")
        self._own_key = names.key(Bucket.WAITERS, names.ticket(device, worker))
        self._timeout_s = timeout_s
        self._clock = clock

    def receive(self, message: Message) -> None:
        """Note that a ticket has changed."""
        sequence = int(message.headers.get(Header.SEQUENCE, "0"))
        self._put(message.subject, message.headers, message.data, sequence)

    async def sync(self) -> None:
        """Read the wait queue as it is now: events of tickets may have been lost. Raises as :meth:`Bus.list_latest`."""
        found = await self._bus.list_latest(Bucket.WAITERS.stream, [self._pattern])
        self.queue.clear()
        for stored in found:
            self._put(stored.subject, stored.headers, stored.data, stored.seq)

    async def write(self, write: PutTicket | DropTicket) -> None:
        """Write this worker's ticket; the ticket learns what became of that."""
        try:
            if isinstance(write, PutTicket):
                sequence = await self._bus.write(
                    self._own_key,
                    messages.encode(write.ticket),
                    expect=write.expect,
                    ttl_s=write.ttl_s,
                    timeout_s=self._timeout_s,
                )
            else:
                sequence = await self._bus.write(
                    self._own_key,
                    headers={Header.KV_OPERATION: "DEL"},
                    expect=write.expect,
                    timeout_s=self._timeout_s,
                )
        except StaleRevision as error:
            self._own.refused(error.last, self._clock())
        except SignalboxError:
            self._own.failed(self._clock())
        else:
            self._own.written(sequence, self._clock())

    def _put(self, subject: str, headers: Mapping[str, str], data: bytes, sequence: int) -> None:
        worker = names.untoken(subject.rpartition(".")[2])
        if is_gone(headers, data):
            self.queue.drop(worker)
            return
        with suppress(msgspec.MsgspecError):
            number = messages.decode(Ticket, data).number or sequence
            self.queue.put(worker, number, self._clock())
