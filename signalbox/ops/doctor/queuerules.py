"""Rules for the queue service's account on a running nats-server: its user, its streams, its room."""

from collections.abc import Mapping
from typing import Any, Final

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.storage import NEARLY_FULL
from signalbox.bus.table import Table
from signalbox.ops.doctor.catalog import Finding
from signalbox.ops.doctor.natsrules import examine_rights
from signalbox.wire import queuenames
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import SIDES
from signalbox.wire.queues import Queue, side_config
from signalbox.wire.roles import queue_role

_WHERE: Final = "account QUEUES"
_OWN: Final = ("max_msgs_per_subject", "num_replicas")
"""What the server may have otherwise than asked: copies follow the nodes."""


async def examine(bus: Bus, queue_bus: Bus, *, role: str) -> list[Finding]:
    """Every weakness of the account, as this program's users see it. bus: of the account of everything else.

    Raises as :meth:`Bus.request_json`.
    """
    found = await examine_rights(queue_bus, _WHERE, queue_role(role)) if queue_bus.settings.nats_user else []
    table = Table(bus, Bucket.QUEUES, Queue)
    await table.start()
    queues = dict(table.items())
    await table.close()
    streams = await _streams(queue_bus, queues)
    found += _differing(queues, streams)
    return found + await _filled(queue_bus, streams)


async def _streams(bus: Bus, queues: Mapping[str, Queue]) -> dict[str, dict[str, Any]]:
    """What the server tells of each stream that there should be, and of what else is in the account of queues."""
    wanted = [queuenames.queue_stream(queue.name, side) for queue in queues.values() for side in SIDES]
    found = {}
    for name in (*wanted, queuenames.REAR):
        info = await topology.stream_info(bus, name)
        if info is not None:
            found[name] = info
    return found


def _differing(queues: Mapping[str, Queue], streams: Mapping[str, dict[str, Any]]) -> list[Finding]:
    found = []
    for queue in queues.values():
        for side in SIDES:
            name = queuenames.queue_stream(queue.name, side)
            info = streams.get(name)
            if info is None:
                found.append(Finding("queues.streams_differ", _WHERE, f"queue {queue.name} has no {side}"))
                continue
            config = {k: v for k, v in side_config(queue, side, 1).items() if k not in _OWN}
            found += [
                Finding("queues.streams_differ", _WHERE, fault)
                for fault in topology.differences(config, info["config"])
            ]
    return found


async def _filled(bus: Bus, streams: Mapping[str, dict[str, Any]]) -> list[Finding]:
    found = []
    account = await bus.request_json("$JS.API.INFO")
    most, used = account["limits"]["max_storage"], account["storage"]
    if most > 0 and used >= NEARLY_FULL * most:
        found.append(Finding("queues.nearly_full", _WHERE, f"queues hold {used / most:.0%} of the account's max_file"))
    elif most <= 0 and bus.settings.nats_user:
        found.append(Finding("queues.unbounded", _WHERE, "the account has no max_file"))
    rear = streams.get(queuenames.REAR)
    if rear is not None and rear["state"]["bytes"] >= NEARLY_FULL * rear["config"]["max_bytes"] > 0:
        share = rear["state"]["bytes"] / rear["config"]["max_bytes"]
        found.append(
            Finding("queues.nearly_full", queuenames.REAR, f"{queuenames.REAR} holds {share:.0%} of its max_bytes")
        )
    return found
