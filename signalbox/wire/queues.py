"""Documents of the queue service: what a queue is, how it stands, and how its room follows from its settings."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, field

from signalbox.wire import queuenames
from signalbox.wire.assets import KIB, MIB, SECOND, Config, stream_config
from signalbox.wire.messages import Doc
from signalbox.wire.queuenames import Rank, Side

MOST_QUEUES: Final = 200
"""Of one installation. Each has a stream for its source and one for its sink."""
DEFAULT_GROUP: Final = "eas"
"""The group that each queue has from its beginning on, and never forgets."""
GROUP_KEPT_S: Final = 7 * 86_400
"""A group of which nobody has watched for so long is forgotten; what it had not committed keeps no item any more."""
MOST_GROUPS: Final = 32
"""Of a side, the default one among them: each is two consumers on NATS, and keeps items until it has had them."""
ACK_WAIT_S: Final = 20
"""An item of whose consumer's plugin nothing is heard for so long is given out again."""
CREATED_AT: Final = "signalbox.created_at"
"""Metadata of a queue's streams: of which queue of that name they are."""
HEAD_BYTES: Final = 16 * KIB
"""Most bytes of an item's tags and what else is said of it, beside its data."""
ITEM_MOST_BYTES: Final = 2 * MIB - HEAD_BYTES - 4 * KIB
"""Most bytes of an item's data, however much room a side has: NATS takes 2 MiB of a message, with its headers."""
_USABLE: Final = 0.9
"""Of a queue's memory, as the product has it; the rest is its own."""


class QueueSide(Doc, frozen=True, kw_only=True):
    """Bounds of one side of a queue. Either of max_length (items) and max_payload_kb is given, 0 = it follows from the
    other and the queue's memory. auto_evict: a full side drops its oldest item for a new one; else it refuses that."""

    max_length: Annotated[int, Meta(ge=0)] = 0
    max_payload_kb: Annotated[int, Meta(ge=0)] = 8
    auto_evict: bool = False


class Queue(Doc, frozen=True, kw_only=True):
    """KV ``queues``: a queue. Key: its name as :func:`names.token` has it. Written by the console.

    account_id: whose keys may use it. services: models that take from the source and put into the sink; empty = none,
    its consumers are the account's own. key_id: of the account's key whose jobs their items are; empty = any of its
    keys that may. group: of the services, for people. instances: replicas on NATS, bounded by its nodes. memory_mb,
    memory_ratio: what both sides' lengths follow from, and the sink's part of it. max_delivery: times an item is given
    out before it is dead, 0 = unlimited. max_idle_s: how long one may be given out without a commit, 0 = as long as its
    consumer lives. dead_message_policy: dead items go to the rear queue, or away. created_at: UTC seconds; one of the
    same name made later is another queue, which begins empty.
    """

    name: str
    account_id: str
    services: tuple[str, ...] = ()
    key_id: str = ""
    group: str = ""
    instances: Annotated[int, Meta(ge=1, le=5)] = 1
    resource: str = ""
    cpu: Annotated[int, Meta(ge=1)] = 1
    memory_mb: Annotated[int, Meta(ge=1)] = 4000
    memory_ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    source: QueueSide = QueueSide()
    sink: QueueSide = QueueSide()
    max_delivery: Annotated[int, Meta(ge=0)] = 5
    max_idle_s: Annotated[float, Meta(ge=0)] = 0.0
    dead_message_policy: Literal["Rear", "Drop"] = "Rear"
    created_at: float = 0.0
    updated_at: float = 0.0

    def room(self, side: Side) -> "Room":
        """The room of a side: with 4000 MB, half of them and 8 kB an item, 230 399 items (S4.21)."""
        bounds = self.sink if side == "sink" else self.source
        ratio = self.memory_ratio if side == "sink" else 1 - self.memory_ratio
        kib = self.memory_mb * 1024 * _USABLE * ratio
        if bounds.max_length:
            item_bytes = max(1, int(kib / (bounds.max_length + 1))) * KIB
            return Room(bounds.max_length, min(item_bytes, ITEM_MOST_BYTES))
        return Room(max(1, int(kib / bounds.max_payload_kb) - 1), min(bounds.max_payload_kb * KIB, ITEM_MOST_BYTES))


class Room(NamedTuple):
    """What a side holds at most. length: items. item_bytes: of the data of one."""

    length: int
    item_bytes: int


class WatchState(Doc, frozen=True, kw_only=True):
    """One open watch. status: Running, Complete (the stream has ended and is drained), Leaving (said ``Shutdown``).

    index: of the last item given out. pending: given out and not committed. idle_s: since the last item or commit.
    slots: what of the window is free. since: UTC seconds at which it was opened; of two of the same consumer the later
    one goes on, and a plugin that knows of an earlier one opens its own later than that, whatever its clock says.
    """

    queue: str
    side: Side
    group: str
    uid: str
    index: int = 0
    pending: int = 0
    window: int = 1
    slots: int = 0
    idle_s: float = 0.0
    status: Literal["Running", "Complete", "Leaving"] = "Running"
    is_auto_commit: bool = False
    since: float = 0.0
    tags: dict[str, str] = field(default_factory=dict)


class Watching(Doc, frozen=True, kw_only=True):
    """Core ``watching.<instance>`` of the account ``QUEUES``: every watch that one plugin holds, whenever one comes or
    goes and every few seconds; empty as it stops. Whoever has not heard of an instance for long forgets it."""

    watches: tuple[WatchState, ...] = ()


class WatchAsk(Doc, frozen=True, kw_only=True):
    """Core ``ask.watch.<instance>`` of the account ``QUEUES``: the plugin that holds a consumer's watch gives items
    back. code, reason: the consumer's own; ``Shutdown`` = it takes no more. The answer is a :class:`WatchDone`."""

    queue: str
    side: Side
    group: str
    uid: str
    indexes: tuple[int, ...]
    code: str = ""
    reason: str = ""


class WatchDone(Doc, frozen=True, kw_only=True):
    """Whether the watch is there, and which of the items it held: those are given back."""

    is_known: bool = False
    indexes: tuple[int, ...] = ()


class GroupState(Doc, frozen=True, kw_only=True):
    """A group of one side. pending: given out and not committed. left: not given out yet. index: of the last item that
    was given out."""

    name: str
    pending: int = 0
    left: int = 0
    index: int = 0


class SideState(Doc, frozen=True, kw_only=True):
    """How a side stands. oldest_at: UTC seconds, 0 = it is empty. rear: dead items of it. is_away: NATS has no leader
    for its stream, so that nothing can be put or taken; all else is as before."""

    length: int = 0
    size: int = 0
    first_index: int = 0
    last_index: int = 0
    oldest_at: float = 0.0
    rear: int = 0
    is_ended: bool = False
    is_away: bool = False
    groups: tuple[GroupState, ...] = ()


class QueueState(Doc, frozen=True, kw_only=True):
    """KV ``queuestates``: how a queue stands. Key: as its document's. Written by the outbound program.

    state: ``creating`` until its streams are there; ``failed`` where NATS refused them, and why says what to do.
    replicas: that NATS really keeps.
    """

    state: Literal["creating", "running", "failed"] = "creating"
    why: str = ""
    replicas: int = 0
    source: SideState = SideState()
    sink: SideState = SideState()
    watches: tuple[WatchState, ...] = ()
    at: float = 0.0


class QueueMark(Doc, frozen=True, kw_only=True):
    """KV ``queuemarks``: a side's stream has ended (``_eos_``). Key: :func:`queuenames.queue_mark`. Written by
    gateways; a truncation of all, and the console, take it away.

    index: of the last item; consumers that have all up to there are complete. is_forced: what was left was thrown away.
    """

    ended_at: float
    index: int = 0
    is_forced: bool = False


class QueueAsk(Doc, frozen=True, kw_only=True):
    """Core ``ask.queue.<queue>``: what an operator asks the outbound program to do with one side of a queue.

    act: ``purge`` what is in it (or in its rear queue), ``redrive`` rear items back into it, ``reopen`` an ended side.
    most: how many at most, 0 = all. created_at: of the queue that the operator saw, 0 = whichever has the name; an ask
    that is read late is not done to a later one. The answer is a :class:`QueueDone`.
    """

    act: Literal["purge", "redrive", "reopen"]
    side: Side = "source"
    is_rear: bool = False
    most: int = 0
    created_at: float = 0.0


class QueueDone(Doc, frozen=True, kw_only=True):
    """How many items an act was done with; error: why it ended early, empty = it did not."""

    items: int = 0
    error: str = ""


def backlog(queues: Iterable[tuple[Queue, QueueState | None]]) -> dict[str, int]:
    """Items that wait for each model in sources of which it is a service, and are given to none yet. None waits for a
    model that is not there. What several services share counts for each of them: any may get it."""
    found: Counter[str] = Counter()
    for queue, state in queues:
        groups = state.source.groups if state is not None and queue.services else ()
        left = sum(group.left for group in groups if group.name == DEFAULT_GROUP)
        found.update(dict.fromkeys(queue.services, left))
    return {model: number for model, number in found.items() if number}


def side_config(queue: Queue, side: Side, nodes: int) -> Config:
    """The stream of a side, on so many nodes. What each of its groups has committed, the server removes at once."""
    bounds, room = (queue.sink if side == "sink" else queue.source), queue.room(side)
    items = queuenames.queue_items(queue.name, side)
    rest = f"{items.removesuffix('*.*')}>"
    return stream_config(
        queuenames.queue_stream(queue.name, side),
        [items],
        f"Items of the {side} of queue {queue.name}",
        retention="interest",
        discard="old" if bounds.auto_evict else "new",
        max_msgs=room.length,
        max_consumers=len(queuenames.RANKS) * MOST_GROUPS,
        max_msg_size=room.item_bytes + HEAD_BYTES,
        allow_direct=True,
        num_replicas=min(queue.instances, nodes),
        republish={"src": rest, "dest": f"evt.{rest}", "headers_only": True},
        metadata={CREATED_AT: f"{queue.created_at:.3f}"},
    )


def rear_config(nodes: int, most_bytes: int) -> Config:
    """The stream of dead items: a full one refuses more, which then stay in their queues."""
    return stream_config(
        queuenames.REAR,
        [queuenames.rear_items()],
        "Dead items of queues",
        discard="new",
        max_bytes=most_bytes,
        allow_direct=True,
        num_replicas=min(3, nodes),
    )


def group_config(queue: Queue, side: Side, group: str, rank: Rank, start_index: int = 0) -> dict[str, Any]:
    """A group's consumer of one rank, which begins at an index; 0 = at what is there, -1 = behind it.

    That an item is dead, or was given out for too long, is for the plugin to see: the server gives out for ever.
    """
    config: dict[str, Any] = {
        "durable_name": queuenames.queue_consumer(group, rank),
        "filter_subject": queuenames.queue_items(queue.name, side, rank),
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_S * SECOND,
        "max_deliver": -1,
        "max_ack_pending": 1_000_000,
        "max_waiting": 4096,
        "deliver_policy": "new" if start_index < 0 else "by_start_sequence" if start_index else "all",
    }
    if start_index > 0:
        config["opt_start_seq"] = start_index
    if group != DEFAULT_GROUP:
        config["inactive_threshold"] = GROUP_KEPT_S * SECOND
    return config
