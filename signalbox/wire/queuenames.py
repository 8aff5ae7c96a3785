"""Every name on the wire of the queue service: streams and subjects of queues' sides, and consumers of their groups.

What they lie in and what every program has, buckets and headers, is named in :mod:`signalbox.wire.names`.
"""

from typing import Final, Literal

from signalbox.wire.names import token, untoken

Side = Literal["source", "sink"]
SIDES: Final[tuple[Side, ...]] = ("source", "sink")
"""Of a queue: what is put in, and what comes of it."""
Rank = Literal["hi", "lo"]
RANKS: Final[tuple[Rank, ...]] = ("hi", "lo")
"""Of an item in a queue: high ones are given out first."""
QUEUES_ACCOUNT: Final = "QUEUES"
"""NATS account of the queue service: its streams, consumers and core messages. All else is in
:data:`signalbox.wire.names.MAIN_ACCOUNT`."""
REAR: Final = "REAR"
"""Stream in ``QUEUES`` of the dead items of all queues."""


def queue_stream(queue: str, side: Side) -> str:
    """The stream in ``QUEUES`` of one side of a queue; an item's index is its sequence there."""
    return f"Q_{token(queue)}_{side}"


def queue_item(queue: str, side: Side, rank: Rank, request_id: str = "") -> str:
    """Subject of an item. request_id: by which it can be asked for (its tag ``requestId``); empty = it has none."""
    return f"q.{token(queue)}.{side}.{rank}.{token(request_id) or '-'}"


def queue_items(queue: str, side: Side, rank: str = "*", request_id: str = "") -> str:
    """Wildcard over the items of a side: of one rank, with one request id, or all of them."""
    return f"q.{token(queue)}.{side}.{rank}.{token(request_id) or '*'}"


def rank_of(subject: str) -> Rank:
    """The rank of an item's subject."""
    return "hi" if subject.split(".")[3] == "hi" else "lo"


def event_of_queue(queue: str, side: Side, rank: str = "*") -> str:
    """Core subject on which the server republishes what a side gets, headers only."""
    return f"evt.{queue_items(queue, side, rank)}"


def returned(queue: str = "", side: str = "*", group: str = "") -> str:
    """Core subject in ``QUEUES`` on which a plugin tells that it has given back high items of a group, or asks whether
    it is watched: every plugin that does listens."""
    return f"back.{token(queue) or '*'}.{side}.{token(group) or '*'}"


def queue_consumer(group: str, rank: Rank) -> str:
    """The durable consumer of a group, on the stream of a side, of one rank."""
    return f"{token(group)}-{rank}"


def group_of_consumer(consumer: str) -> str:
    """The inverse of :func:`queue_consumer`."""
    return untoken(consumer.rpartition("-")[0])


def rear_item(queue: str, side: Side, request_id: str = "") -> str:
    """Subject in ``REAR`` of a dead item."""
    return f"rear.{token(queue)}.{side}.{token(request_id) or '-'}"


def rear_items(queue: str = "", side: str = "*", request_id: str = "") -> str:
    """Wildcard over the dead items of a queue, or of a side of it."""
    return f"rear.{token(queue) or '*'}.{side}.{token(request_id) or '*'}"


def watching(instance: str = "*") -> str:
    """Core subject in ``QUEUES`` on which a plugin tells of the watches that it holds."""
    return f"watching.{instance}"


def ask_watch(instance: str = "*") -> str:
    """Core subject in ``QUEUES`` on which a plugin is asked to take items back from one of its watches."""
    return f"ask.watch.{instance}"


def queue_ack(queue: str, side: Side, consumer: str = "*", index: str = "*") -> str:
    """Where an item is acknowledged by its index alone, by whoever knows that; the server answers a request."""
    return f"$JS.ACK.{queue_stream(queue, side)}.{consumer}.1.{index}.0.0.0"


def queue_mark(queue: str, side: Side) -> str:
    """KV key in ``queuemarks``."""
    return f"{token(queue)}.{side}"


def ask_queue(queue: str = "*") -> str:
    """Core subject on which an operator asks for an act on a queue."""
    return f"ask.queue.{queue if queue == '*' else token(queue)}"
