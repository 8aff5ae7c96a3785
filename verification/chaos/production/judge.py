"""The laws over a run on a production stack, and what docs/guarantees.md promises besides."""

from verification.chaos.evidence.history import History
from verification.chaos.laws import checks
from verification.chaos.laws.checks import Violation
from verification.chaos.production import promises


def judged(found: History) -> list[Violation]:
    """What broke a law or a promise."""
    return [*checks.check(found), *promises.broken(found.faults)]


def is_production(found: History) -> bool:
    """Whether a history is of such a run."""
    return any(f["event"] == "world" and f.get("is_production") for f in found.faults)
