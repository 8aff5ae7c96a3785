"""Submissions that are refused because nothing more is stored: counted in one place, by what is full."""

from typing import Final

from signalbox.program import metrics

REFUSED: Final = metrics.counter(
    "refused_for_room",
    "Submissions refused because what is stored reached a bound: account_inputs, inputs, account_delayed, "
    "delayed, account_keys, keys, account_results, results, disk (of NATS, which has no more than its reserve).",
    "reason",
)
