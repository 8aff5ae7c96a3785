"""What a queue says of itself, in the product's words. Every value is text. No I/O."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from signalbox.wire.queuenames import Side
from signalbox.wire.queues import GroupState, Queue, QueueMark, WatchState

USER_HEADER: Final = "X-EAS-QueueService-Redis-Uid"
GROUP_HEADER: Final = "X-EAS-QueueService-Redis-Gid"
PRIORITY_HEADER: Final = "X-EAS-QueueService-Priority"
BACKEND: Final = "jetstream"


def described(
    queue: Queue,
    side: Side,
    stream: Mapping[str, int],
    mark: QueueMark | None,
    watches: Sequence[WatchState],
    groups: Sequence[GroupState],
    most_bytes: int,
) -> dict[str, str]:
    """The attributes, by name. stream: its state in NATS's words. most_bytes: that NATS takes in one message."""
    room = queue.room(side)
    length = stream.get("messages", 0)
    told = {
        "meta.name": queue.name,
        "meta.backend": BACKEND,
        "meta.state": "Normal" if mark is None else "Ended",
        "meta.maxPayloadBytes": str(min(room.item_bytes, most_bytes)),
        "meta.header.user": USER_HEADER,
        "meta.header.group": GROUP_HEADER,
        "meta.header.priority": PRIORITY_HEADER,
        "stream.length": str(length),
        "stream.approxMaxLength": str(room.length),
        "stream.firstEntry": str(stream.get("first_seq", 0) if length else 0),
        "stream.lastEntry": str(stream.get("last_seq", 0)),
        "consumers.stats.total": str(len(watches)),
    }
    for number, watch in enumerate(sorted(watches, key=lambda one: (one.group, one.uid))):
        told[f"consumers.list.[{number}]"] = _consumer(watch)
    of_group = Counter(watch.group for watch in watches)
    for number, group in enumerate(sorted(groups, key=lambda one: one.name)):
        told[f"groups.list.[{number}]"] = (
            f"Id: {group.name}, Index: {group.index}, Pending: {group.pending}, Waiting: {group.left}, "
            f"Consumers: {of_group[group.name]}"
        )
    return told


def _consumer(watch: WatchState) -> str:
    text = (
        f"Id: {watch.group}.{watch.uid}, Index: {watch.index}, Pending: {watch.pending}, Status: {watch.status}, "
        f"Idle: {duration(watch.idle_s)}, Window: {watch.window}, Slots: {watch.slots}, "
        f"AutoCommit: {'true' if watch.is_auto_commit else 'false'}"
    )
    return f"{text}, Tags: {urlencode(watch.tags)}" if watch.tags else text


def duration(seconds: float) -> str:
    """A time in the product's form: ``1h0m5s``, ``1m42s``, ``3s``."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
