"""What the outbound program tells of queues to Prometheus. At most 200 queues have series."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

from signalbox.bus.storage import Streams
from signalbox.program import metrics
from signalbox.wire.queuenames import REAR, SIDES
from signalbox.wire.queues import QueueState

LENGTH: Final = metrics.gauge("queue_side_items", "Items in a side of a queue, given out or not.", "queue", "side")
BYTES: Final = metrics.gauge("queue_side_bytes", "Bytes of the items in a side of a queue.", "queue", "side")
OLDEST: Final = metrics.gauge(
    "queue_side_oldest_timestamp_seconds",
    "UTC seconds at which the oldest item of a side was put; 0 = it is empty.",
    "queue",
    "side",
)
DEAD: Final = metrics.gauge("queue_side_dead_items", "Dead items of a side in the rear queue.", "queue", "side")
BACKLOG: Final = metrics.gauge(
    "service_backlog",
    "Items that wait in queues of which a model is a service, and are with none yet; those of a queue that several "
    "share count for each. Beside them its own jobs wait.",
    "model",
)
STORED: Final = metrics.gauge(
    "queues_stored_bytes", "Bytes of all queues together (account), and of their dead items (rear).", "of"
)
LIMIT: Final = metrics.gauge(
    "queues_limit_bytes", "Most bytes of both: max_file of the NATS account of queues, max_bytes of REAR.", "of"
)
LATE: Final = metrics.gauge(
    "queues_late_replicas",
    "Replicas that lag behind their leader or are away: of the streams of all queues, and of their dead items (rear).",
    "of",
)
ACTS: Final = metrics.counter(
    "queue_acts", "Items that operators had redriven or purged, and sides that they opened again.", "act"
)


def show(queue: str, state: QueueState) -> None:
    """How a queue stands now."""
    for side, of in zip(SIDES, (state.source, state.sink), strict=True):
        LENGTH.labels(queue, side).set(of.length)
        BYTES.labels(queue, side).set(of.size)
        OLDEST.labels(queue, side).set(of.oldest_at)
        DEAD.labels(queue, side).set(of.rear)


def show_backlog(before: Iterable[str], counts: Mapping[str, int]) -> None:
    """What waits for models now. before: those of which something waited."""
    for model in {*before, *counts}:
        BACKLOG.labels(model).set(counts.get(model, 0))
    if metrics.is_joined(BACKLOG):
        BACKLOG.labels(metrics.ALL_MODELS).set(sum(counts.values()))


def show_room(of: str, stored_bytes: int, limit_bytes: int) -> None:
    """How full it is; what has no limit is not told."""
    if limit_bytes > 0:
        STORED.labels(of).set(stored_bytes)
        LIMIT.labels(of).set(limit_bytes)


def show_late(streams: Streams) -> None:
    """How many replicas of the account's streams are late."""
    late = streams.late_replicas()
    LATE.labels("rear").set(late.pop(REAR, 0))
    LATE.labels("queues").set(sum(late.values()))


def forget_all() -> None:
    """Another copy of the program tells from now on: what this one has told last would stand beside that for ever."""
    for gauge in (LENGTH, BYTES, OLDEST, DEAD, BACKLOG, STORED, LIMIT, LATE):
        gauge.clear()


def forget(queue: str) -> None:
    """A queue is gone."""
    for side in SIDES:
        for gauge in (LENGTH, BYTES, OLDEST, DEAD):
            with contextlib.suppress(KeyError):  # it was never shown
                gauge.remove(queue, side)
