"""The report of a run over a production stack, for a person and for a program."""

from collections import Counter
from typing import Any, Final, NamedTuple

from verification.chaos.evidence.history import ENDED, History
from verification.chaos.laws import checks
from verification.chaos.laws.checks import Violation
from verification.chaos.production import promises


class ProductionOutcome(NamedTuple):
    """What came of it. skipped: trials there was no time for."""

    history: History
    violations: list[Violation]
    done: list[str]
    left_out: dict[str, str]
    skipped: list[str]
    jobs: int
    answers: Counter[tuple[str, int]]
    seconds: float


def report(outcome: ProductionOutcome) -> str:
    """The table a person reads."""
    found = outcome.history
    broken = Counter(violation.law for violation in outcome.violations)
    ends = Counter(entry["state"] for entry in found.final if entry.get("state") in ENDED)
    lines = [
        f"production: {len(outcome.done)} faults over {outcome.jobs} accepted jobs in {outcome.seconds:.0f} s",
        *(f"left out: {name} ({why})" for name, why in outcome.left_out.items()),
        *([f"no time for: {', '.join(outcome.skipped)}"] if outcome.skipped else []),
        "answers " + ", ".join(f"{op} {status}: {n}" for (op, status), n in sorted(outcome.answers.items())),
        "",
        *_table(found),
        "",
        *(f"  {law:<22}{broken[law]}" for law in checks.LAWS),
        "",
        "ends " + ", ".join(f"{state} {n}" for state, n in sorted(ends.items())),
        *(f"NOT JUDGED: {law} ({why})" for law, why in checks.unjudged(found).items()),
        *(f"VIOLATION {v.law}: {v.text}" for v in outcome.violations[:60]),
    ]
    return "\n".join(lines)


_COLUMNS: Final = {
    promises.SILENT: "no job for",
    promises.ACCEPTING: "accepting",
    promises.ENDING: "ending",
    promises.WHOLE: "all back",
    promises.SHOWN: "console",
}


def _table(found: History) -> list[str]:
    """A line a fault: what was refused or not answered meanwhile, and how long each thing took, in seconds."""
    heads = "".join(f"{column:>11}" for column in _COLUMNS.values())
    rows = [f"{'fault':<36}{'refused':>8}{'silent':>8}{heads}"]
    figures: dict[str, dict[str, float]] = {}
    for fault in found.faults:
        if fault["event"] == "measured":
            figures.setdefault(fault["kind"], {})[fault["what"]] = fault["s"]
    for kind, (since, until) in sorted(_spans(found).items()):
        statuses = Counter(
            entry["status"] for entry in found.ledger if entry["event"] == "answer" and since <= entry["at"] <= until
        )
        refused = sum(n for status, n in statuses.items() if status >= 400)
        took = (figures.get(kind, {}).get(what, float("nan")) for what in _COLUMNS)
        rows.append(f"{kind:<36}{refused:>8}{statuses[0]:>8}{''.join(f'{s:>11.2f}' for s in took)}")
    rows += [
        f"  {what:<46} n {len(s):<5}max {max(s):7.3f} s"
        for what, s in sorted(checks.measured(found).items())
        if what.startswith("holder")
    ]
    return rows


def _spans(found: History) -> dict[str, tuple[float, float]]:
    """When each trial began and ended."""
    begun = {f["kind"]: f["at"] for f in found.faults if f["event"] == "begin" and f["target"] == "all"}
    return {f["kind"]: (begun[f["kind"]], f["at"]) for f in found.faults if f["event"] == "end" and f["kind"] in begun}


def summary(outcome: ProductionOutcome) -> dict[str, Any]:
    """The same for a program."""
    return {
        "done": outcome.done,
        "left_out": outcome.left_out,
        "skipped": outcome.skipped,
        "jobs": outcome.jobs,
        "seconds": round(outcome.seconds, 1),
        "violations": [v._asdict() for v in outcome.violations],
    }
