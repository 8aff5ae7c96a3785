"""The laws over a run on a production stack, and what docs/guarantees.md promises besides."""

from typing import Final

from tests.chaos import checks
from tests.chaos.checks import Violation
from tests.chaos.evidence import History
from tests.chaos.history import Entry
from tests.chaos.production import promises

FRONT: Final = "tyk"
UNREADY: Final = "Not Found"
"""All that Tyk says between opening its port and loading its APIs; our own 404 is a problem document."""


def judged(found: History) -> list[Violation]:
    """What broke a law or a promise."""
    return [*laws(found), *promises.broken(found.faults)]


def is_production(found: History) -> bool:
    """Whether a history is of such a run."""
    return any(f["event"] == "world" and f.get("is_production") for f in found.faults)


def laws(found: History) -> list[Violation]:
    """What broke a law. A Tyk that starts is away until it has loaded its APIs, whatever it says."""
    starts = _starts(found)
    return checks.check(found._replace(ledger=[_as_meant(entry, starts) for entry in found.ledger]))


def _as_meant(entry: Entry, starts: list[tuple[float, float]]) -> Entry:
    is_unready = (
        entry.get("status") == 404
        and str(entry.get("text", "")).rpartition(": ")[2] == UNREADY
        and any(since <= entry["at"] <= until for since, until in starts)
    )
    return {**entry, "status": 0, "again": "0"} if is_unready else entry


def _starts(found: History) -> list[tuple[float, float]]:
    """When trials that ended Tyk began and were over."""
    kinds = {f"kill {FRONT}", f"roll {FRONT}"}
    begun = [f["at"] for f in found.faults if f["event"] == "begin" and f["kind"] in kinds]
    ended = [f["at"] for f in found.faults if f["event"] == "end" and f["kind"] in kinds]
    return list(zip(begun, ended, strict=False))
