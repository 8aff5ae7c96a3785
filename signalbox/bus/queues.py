"""The way to the queue service's streams: a connection of their own, and how they are made."""

import contextlib
import math
from typing import Any, Final

from msgspec.structs import replace

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.errors import LimitExceeded, Misconfigured, NotFound
from signalbox.program.settings import Wire
from signalbox.wire import queuenames
from signalbox.wire.assets import GIB
from signalbox.wire.queuenames import RANKS, SIDES, Side
from signalbox.wire.queues import (
    CREATED_AT,
    DEFAULT_GROUP,
    MOST_GROUPS,
    Queue,
    group_config,
    rear_config,
    side_config,
)

REAR_SHARE: Final = 0.125
"""Of what the account of queues may store: dead items take no more."""
REAR_BYTES: Final = GIB
"""What they take where that has no bound."""
_TOO_MANY_CONSUMERS: Final = 10_026
"""NATS's code for a consumer above its stream's number."""


async def connect(settings: Wire, *, role: str) -> Bus:
    """A connection to the account of the queue service. Raises as :meth:`Bus.connect`."""
    if settings.queues_nats_user:
        user, password = settings.queues_nats_user, settings.queues_nats_password
        settings = replace(settings, nats_user=user, nats_password=password, nats_seed="")
    return await Bus.connect(settings, role=role)


async def declare(bus: Bus, queue: Queue, nodes: int = 1) -> None:
    """Make both streams of a queue, with the default group's consumers, or change them to what its document says.

    Idempotent; groups and items stay, but for those of an earlier queue of the same name. Raises :class:`Misconfigured`
    or :class:`Unavailable` where the server refuses them.
    """
    configs = {side: side_config(queue, side, nodes) for side in SIDES}
    infos = {side: await topology.stream_info(bus, config["name"]) for side, config in configs.items()}
    if any(info is not None and created_at(info) < round(queue.created_at, 3) for info in infos.values()):
        await remove(bus, queue.name)
        infos = dict.fromkeys(SIDES)
    for side, config in configs.items():
        name, info = config["name"], infos[side]
        if info is None:
            await bus.request_json(f"$JS.API.STREAM.CREATE.{name}", config)
        elif topology.differences(config, info["config"]):
            await bus.request_json(f"$JS.API.STREAM.UPDATE.{name}", info["config"] | config)
        await make_group(bus, queue, side, DEFAULT_GROUP)


async def declare_rear(bus: Bus, nodes: int = 1, most_bytes: int = 0) -> None:
    """Make the stream of dead items, or change it. most_bytes: 0 = a share of what the account may store.

    Idempotent; it is never made smaller than what it holds. Raises as :func:`declare`.
    """
    if not most_bytes:
        may_store = int((await bus.request_json("$JS.API.INFO"))["limits"]["max_storage"])
        most_bytes = int(may_store * REAR_SHARE) if may_store > 0 else REAR_BYTES
    info = await topology.stream_info(bus, queuenames.REAR)
    if info is None:
        await bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(nodes, most_bytes))
        return
    config = rear_config(nodes, max(most_bytes, info["state"]["bytes"]))
    if topology.differences(config, info["config"]):
        await bus.request_json(f"$JS.API.STREAM.UPDATE.{queuenames.REAR}", info["config"] | config)


async def make_group(bus: Bus, queue: Queue, side: Side, group: str, start_index: int = 0) -> None:
    """Make a group's consumers, or find them there: a known group goes on where it stood.

    Raises :class:`LimitExceeded` where the side has as many groups as it may.
    """
    stream = queuenames.queue_stream(queue.name, side)
    for rank in RANKS:
        config = group_config(queue, side, group, rank, start_index)
        name = config["durable_name"]
        try:
            await bus.consumer_info(name, stream)
        except NotFound:
            asked = {"stream_name": stream, "config": config, "action": "create"}
            try:
                await bus.request_json(f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{config['filter_subject']}", asked)
            except Misconfigured as error:
                if error.facts.get("err_code") != _TOO_MANY_CONSUMERS:
                    raise
                raise LimitExceeded(
                    f"This side of the queue has {MOST_GROUPS} groups of consumers, and no more may be made. One that "
                    "nobody has watched for 7 days goes by itself; have others forgotten with DELETE ?_forget_=true.",
                    bound="groups",
                    limit=MOST_GROUPS,
                ) from error


async def remove_group(bus: Bus, queue: str, side: Side, group: str) -> None:
    """Remove a group's consumers, and the items that were kept for it alone. Idempotent."""
    stream = queuenames.queue_stream(queue, side)
    for rank in RANKS:
        with contextlib.suppress(NotFound):
            await bus.request_json(f"$JS.API.CONSUMER.DELETE.{stream}.{queuenames.queue_consumer(group, rank)}")


async def remove(bus: Bus, queue: str) -> None:
    """Remove both streams of a queue, with all that is in them, and its dead items. Idempotent.

    The dead ones go first, and what was buried meanwhile last: where this breaks off, the name may be another account's
    before it is asked again, and streams that are gone are then made anew without looking at the rear queue.
    """
    await _remove_rear(bus, queue)
    for side in SIDES:
        with contextlib.suppress(NotFound):
            await bus.request_json(f"$JS.API.STREAM.DELETE.{queuenames.queue_stream(queue, side)}")
    await _remove_rear(bus, queue)


async def _remove_rear(bus: Bus, queue: str) -> None:
    with contextlib.suppress(NotFound):
        await bus.request_json(f"$JS.API.STREAM.PURGE.{queuenames.REAR}", {"filter": queuenames.rear_items(queue)})


def created_at(info: dict[str, Any]) -> float:
    """When the queue was made whose stream this is, UTC seconds; infinitely late where it does not say.

    info: of the stream, in NATS's words.
    """
    found: str | None = (info["config"].get("metadata") or {}).get(CREATED_AT)
    return float(found) if found is not None else math.inf
