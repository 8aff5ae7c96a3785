"""The queue service's part of a backup: the streams of its account, which no declaration names.

Sources are saved before sinks, and those before dead items: what passes from one to the next meanwhile is saved twice
and not never. Only what an operator redrives during a backup goes the other way, and may be in neither. Documents come
after all of them: a queue without its streams is made again, empty.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.ops.snapshots import SavedStream
from signalbox.program.errors import Misconfigured, NotFound
from signalbox.wire import queuenames
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import SIDES

_ORDER: Final = (*(f"_{side}" for side in SIDES), queuenames.REAR)


async def save(bus: Bus, save_one: Callable[[Bus, str], Awaitable[SavedStream]]) -> list[SavedStream]:
    """Save every stream of queues; one whose queue is removed meanwhile is left out.

    bus: to the account of queues. Raises as :func:`signalbox.ops.snapshots.save`.
    """
    saved = []
    for name in await existing(bus):
        with contextlib.suppress(NotFound):
            saved.append(await save_one(bus, name))
    return saved


async def existing(bus: Bus) -> list[str]:
    """The streams of queues that there are, in the order of saving. Raises :class:`Unavailable`."""
    found = [name for name in await bus.listed("$JS.API.STREAM.NAMES", "streams") if _is_ours(name)]
    return sorted(found, key=lambda name: (next(n for n, end in enumerate(_ORDER) if name.endswith(end)), name))


async def are_any(bus: Bus) -> bool:
    """Whether the console has made queues. bus: to the account of everything else. Raises :class:`Unavailable`."""
    try:
        info = await bus.request_json(f"$JS.API.STREAM.INFO.{Bucket.QUEUES.stream}")
    except NotFound:
        return False
    return bool(info["state"]["messages"])


def require_way(bus: Bus, queue_bus: Bus) -> None:
    """Raise :class:`Misconfigured` where queues are in an account of their own and no way to it is given."""
    if queue_bus is bus and bus.settings.nats_user:
        raise Misconfigured(
            "There are queues, and their items are in an account of their own: set SIGNALBOX_QUEUES_NATS_USER "
            "(admin-queues) and SIGNALBOX_QUEUES_NATS_PASSWORD_FILE."
        )


def for_nodes(saved: SavedStream, nodes: int) -> SavedStream:
    """With no more copies than there are nodes; the outbound program gives it more where its queue is to have them."""
    return replace(saved, config=saved.config | {"num_replicas": min(nodes, saved.config.get("num_replicas", 1))})


def _is_ours(name: str) -> bool:
    return name == queuenames.REAR or (name.startswith("Q_") and name.endswith(_ORDER[:-1]))
