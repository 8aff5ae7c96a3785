"""What docs/guarantees.md promises of recoveries in the shipped topology, and which of them a run broke."""

from collections.abc import Iterable, Mapping
from typing import Final

from verification.chaos.evidence.journal import Entry
from verification.chaos.laws.checks import Violation
from verification.chaos.scenarios.outages import FENCE_S
from verification.chaos.scenarios.split import HELD_S

WIDE_S: Final = 120.0
"""What the law "bounds" allows every figure, on however busy a machine."""
SILENT: Final = "longest without an accepted job"
ACCEPTING: Final = "accepting again"
ENDING: Final = "jobs end again"
WHOLE: Final = "all at work again"
SHOWN: Final = "console shows the newest job"
FENCED: Final = "runner dead"
HELD: Final = "another holder"
PROMISED: Final[Mapping[str, float]] = {
    SILENT: 10.0,
    ACCEPTING: 10.0,
    ENDING: 60.0,
    WHOLE: 60.0,
    SHOWN: 60.0,
    FENCED: FENCE_S,
    HELD: HELD_S,
}
"""Seconds. The first while anything but the front itself is away, all others once nothing hinders any more."""


def broken(faults: Iterable[Entry]) -> list[Violation]:
    """Each figure above its promise. away_s: what the fault itself took, where the front itself was away."""
    return [
        Violation("promised", f"{f['kind']}: {f['what']} {f['s']:.2f} s, {allowed:g} s promised")
        for f in faults
        if f["event"] == "measured"
        and f["what"] in PROMISED
        and f["s"] > (allowed := PROMISED[f["what"]] + f.get("away_s", 0.0))
    ]
