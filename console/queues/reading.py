"""How queues stand, as the outbound program tells it, read from NATS at each request."""

from typing import Final

from console.asking import ask, decoded, documents
from console.queues.models import Queue
from signalbox.bus.client import Bus
from signalbox.program.errors import Misconfigured, Unavailable
from signalbox.wire import names
from signalbox.wire.names import Bucket
from signalbox.wire.queues import QueueState

_WHAT: Final = "queues"


def states() -> dict[str, QueueState]:
    """By name of the queue. Raises :class:`Unavailable`."""
    found = ask(_WHAT, lambda bus: documents(bus, Bucket.QUEUE_STATES, QueueState))
    return {names.untoken(key): state for key, state in found.items()}


def state(name: str) -> QueueState | None:
    """Of one queue; None where the outbound program has not seen it yet. Raises :class:`Unavailable`."""

    async def read(bus: Bus) -> QueueState | None:
        subject = names.key(Bucket.QUEUE_STATES, names.token(name))
        found = await bus.direct_get(Bucket.QUEUE_STATES.stream, subject)
        return decoded(QueueState, found) if found is not None else None

    return ask(_WHAT, read)


def bytes_of(account_id: str) -> int | None:
    """Of items in an account's queues, source and sink; None where NATS does not tell now."""
    mine = set(Queue.objects.filter(account_id=account_id).values_list("name", flat=True))
    try:
        found = states() if mine else {}
    except (Unavailable, Misconfigured):
        return None
    return sum(one.source.size + one.sink.size for name, one in found.items() if name in mine)
