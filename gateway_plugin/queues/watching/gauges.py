"""What the queue service counts of items that are given out, for Prometheus."""

from typing import Final

from signalbox.program import metrics

WATCHES: Final = metrics.gauge("queue_watches", "Open watches of queues.")
GIVEN: Final = metrics.counter("queue_items_given", "Items of queues that were given to a watch.")
COMMITTED: Final = metrics.counter("queue_items_committed", "Items of queues that were committed.")
RETURNED: Final = metrics.counter(
    "queue_items_returned",
    "Items that are given out again: closed (their watch has ended), idle (out for longer than max_idle), negative "
    "(their consumer gave them back), late (NATS had given them out again), spare (no slot was free any more).",
    "why",
)
DEAD: Final = metrics.counter(
    "queue_items_dead", "Items given out more often than max_delivery, by what became of them: Rear or Drop.", "policy"
)
