"""The queues of every model on NATS: those that are missing are made again, whoever lost them."""

from channels.db import database_sync_to_async

from console.catalog.models import ServedModel
from signalbox import log, topology
from signalbox.bus import Bus
from signalbox.errors import SignalboxError, Unavailable
from signalbox.names import PRIORITIES, Stream, consumer


async def make_missing(bus: Bus) -> int:
    """Make what is missing of the queues of every registered model; returns for how many models. Idempotent.

    A stream that was lost and made again has none of its consumers. A model whose queues NATS refuses keeps no other
    from its own; the outbox tells why. Raises :class:`Unavailable`.
    """
    known = await database_sync_to_async(_models)()
    there = await _names(bus)
    missing = [
        name
        for name in known
        if not there.issuperset(consumer(name, priority) for priority in PRIORITIES)
    ]
    made = [name for name in missing if await _is_made(bus, name)]
    if made:
        log.warning("queues.made_again", count=len(made), models=made[:20])
    return len(made)


async def _is_made(bus: Bus, model: str) -> bool:
    try:
        await topology.ensure_consumers(bus, model)
    except Unavailable:
        raise
    except SignalboxError as error:
        log.warning("queues.refused", model=model, code=error.code, reason=str(error))
        return False
    return True


def _models() -> list[str]:
    return list(ServedModel.objects.values_list("name", flat=True))


async def _names(bus: Bus) -> set[str]:
    found: set[str] = set()
    asked = 0
    while True:
        page = await bus.request_json(f"$JS.API.CONSUMER.NAMES.{Stream.JOBS}", {"offset": asked})
        names = page.get("consumers") or []
        found.update(names)
        asked += len(names)
        if not names or asked >= page["total"]:
            return found
