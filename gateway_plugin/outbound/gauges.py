"""What the outbound program counts of ends for Prometheus."""

from typing import Final

from signalbox.program import metrics

ENDS_WRITTEN: Final = metrics.counter("outbound_ends_written", "Ends of jobs written to RESULTS.", "model", "state")
ENDS_EVICTED: Final = metrics.counter(
    "outbound_ends_evicted",
    "Ends taken out of RESULTS before their time: share (the account has more than its share), full (RESULTS is full, "
    "and the account has the most).",
    "reason",
)
ENDS_LOST: Final = metrics.counter(
    "outbound_ends_lost",
    "Ends that were to be written and were not: gone (the record was removed meanwhile), too_large, unreadable.",
    "reason",
)
FOLLOWER_LAG: Final = metrics.gauge(
    "outbound_follower_lag", "Records in STATE that the follower has yet to look at; 0 where nobody is subscribed."
)
SPANS: Final = metrics.counter(
    "outbound_spans",
    "Spans of traces: sent, failed (the collector did not take them), dropped (too many waited for it).",
    "outcome",
)
