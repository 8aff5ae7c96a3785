"""The queues of every model on NATS: those that are missing are made again."""

from typing import Final

from channels.db import database_sync_to_async

from console.catalog.models import ServedModel
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire.names import PRIORITIES, Stream, consumer

_MOST_NAMED: Final = 20


async def make_missing(bus: Bus) -> int:
    """Make what is missing of the queues of every registered model; returns for how many models. Idempotent.

    A stream that was lost and made again has none of its consumers. A model whose queues NATS refuses keeps no other
    from its own; the outbox tells why. Raises :class:`Unavailable`.
    """
    known = await database_sync_to_async(_models)()
    there = set(await bus.listed(f"$JS.API.CONSUMER.NAMES.{Stream.JOBS}", "consumers"))
    missing = [name for name in known if not there.issuperset(consumer(name, priority) for priority in PRIORITIES)]
    made, refused = [], {}
    for name in missing:
        try:
            await topology.ensure_consumers(bus, name)
            made.append(name)
        except Unavailable:
            raise
        except SignalboxError as error:
            refused[name] = str(error)
    if made:
        log.warning("queues.made_again", count=len(made), models=made[:_MOST_NAMED])
    if refused:
        reason = next(iter(refused.values()))
        named = list(refused)[:_MOST_NAMED]
        log.warning("queues.refused", count=len(refused), models=named, reason=reason)
    return len(made)


def _models() -> list[str]:
    return list(ServedModel.objects.values_list("name", flat=True))
