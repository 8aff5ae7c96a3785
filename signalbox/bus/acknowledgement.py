"""What a reader says to a consumer that takes acknowledgements of each delivery.

An acknowledgement that is not answered may be lost: the message is then delivered again after the consumer's
``ack_wait``. Source: NATS ADR-13 and the reference of consumers.
"""

from typing import Final

import msgspec

from signalbox.bus.client import Bus, Delivery

_encode: Final = msgspec.json.Encoder().encode


async def ack(bus: Bus, delivery: Delivery) -> None:
    """The message is done with; returns when the server knows. Raises :class:`Unavailable`."""
    await bus.request(delivery.reply.decode(), b"+ACK")


def nak(bus: Bus, delivery: Delivery, delay_s: float = 0.0) -> None:
    """The message is to be delivered again, not before ``delay_s`` from now."""
    body = b"-NAK " + _encode({"delay": int(delay_s * 1e9)}) if delay_s > 0 else b"-NAK"
    bus.send(delivery.reply.decode(), b"", b"", body)
