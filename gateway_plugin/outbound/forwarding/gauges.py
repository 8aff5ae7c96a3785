"""What is counted of queues' services for Prometheus."""

from typing import Final

from signalbox.program import metrics

FORWARDED: Final = metrics.counter(
    "queue_items_forwarded",
    "Items of queues that were with a service, by model and what became of them: result, empty (nothing for the sink), "
    "error (the sink has it instead of a result), again (the result was there), given_back (their job failed and is "
    "tried again), dead.",
    "model",
    "outcome",
)
STOPPED: Final = metrics.gauge(
    "queue_services_stopped",
    "Services of queues that take no items now, by reason: sink_full, sink_conflict (its stream has ended), "
    "sink_unavailable (it is being made, or NATS is away), forbidden (no key may), not_found (there is no such model), "
    "not_serving (it is disabled), unavailable.",
    "reason",
)
