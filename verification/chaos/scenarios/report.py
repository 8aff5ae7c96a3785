"""The report of a run, for a person and for a program."""

from collections import Counter
from typing import Any, Final

from verification.chaos.evidence.history import ENDED, History
from verification.chaos.laws import checks
from verification.chaos.scenarios.storm import Outcome

_COLUMNS: Final = {
    "longest without an accepted job": "no job for",
    "accepting again": "accepting",
    "jobs end again": "ending",
    "all at work again": "all back",
    "console shows the newest job": "console",
}


def report(outcome: Outcome) -> str:
    """The table a person reads."""
    found = outcome.history
    broken = Counter(violation.law for violation in outcome.violations)
    ends = Counter(entry["state"] for entry in found.final if entry.get("state") in ENDED)
    attempts = max((entry["attempt"] for entry in found.final if "attempt" in entry), default=0)
    lines = [
        outcome.title,
        f"{outcome.kinds.total()} faults over {outcome.jobs} accepted jobs in {outcome.seconds:.0f} s",
        "faults " + ", ".join(f"{kind} {n}" for kind, n in sorted(outcome.kinds.items())),
        *(f"left out: {name} ({why})" for name, why in outcome.left_out.items()),
        *([f"no time for: {', '.join(outcome.skipped)}"] if outcome.skipped else []),
        "answers " + ", ".join(f"{op} {status}: {n}" for (op, status), n in sorted(outcome.answers.items())),
        "",
        *(f"  {law:<22}{broken[law]}" for law in checks.LAWS),
        "",
        "ends " + ", ".join(f"{state} {n}" for state, n in sorted(ends.items())) + f"; most attempts {attempts}",
        *figures(found),
        *_recoveries(found),
        "",
        *(f"VIOLATION {v.law}: {v.text}" for v in outcome.violations[:60]),
    ]
    return "\n".join(lines)


def figures(found: History) -> list[str]:
    """What no law could judge, and percentiles of everything that was measured but by :func:`_recoveries`."""
    return [
        *(f"NOT JUDGED: {law} ({why})" for law, why in checks.unjudged(found).items()),
        *(
            f"  {what:<46} n {len(s):<5}p50 {checks.percentile(s, 0.5):7.3f}  p99 {checks.percentile(s, 0.99):7.3f}"
            f"  max {max(s):7.3f} s"
            for what, s in sorted(checks.measured(found).items())
            if not (_is_production(found) and what.partition(": ")[2] in _COLUMNS)
        ),
    ]


def _is_production(found: History) -> bool:
    return any(fault["event"] == "stack" for fault in found.faults)


def _recoveries(found: History) -> list[str]:
    """A line a fault of a production stack: what was refused or not answered, and how long each thing took."""
    if not _is_production(found):
        return []
    begun = {f["kind"]: f["at"] for f in found.faults if f["event"] == "begin" and f["target"] == "all"}
    spans = {f["kind"]: (begun[f["kind"]], f["at"]) for f in found.faults if f["event"] == "end" and f["kind"] in begun}
    took: dict[str, dict[str, float]] = {}
    for fault in found.faults:
        if fault["event"] == "measured" and fault["what"] in _COLUMNS:
            took.setdefault(fault["kind"], {})[fault["what"]] = fault["s"]
    rows = []
    for kind, (since, until) in sorted((kind, span) for kind, span in spans.items() if kind in took):
        answers = (e for e in found.ledger if e["event"] == "answer" and since <= e["at"] <= until)
        statuses = Counter(entry["status"] for entry in answers)
        refused = sum(n for status, n in statuses.items() if status >= 400)
        seconds = "".join(f"{took[kind].get(what, float('nan')):>11.2f}" for what in _COLUMNS)
        rows.append(f"{kind:<36}{refused:>8}{statuses[0]:>8}{seconds}")
    heads = "".join(f"{column:>11}" for column in _COLUMNS.values())
    return [f"{'fault':<36}{'refused':>8}{'silent':>8}{heads}", *rows]


def summary(outcome: Outcome) -> dict[str, Any]:
    """What came of it, for a program."""
    return {
        "faults": outcome.kinds.total(),
        "kinds": dict(outcome.kinds),
        "left_out": outcome.left_out,
        "skipped": outcome.skipped,
        "jobs": outcome.jobs,
        "seconds": round(outcome.seconds, 1),
        "violations": [violation._asdict() for violation in outcome.violations],
        "takeover_s": [f["s"] for f in outcome.history.faults if f["event"] == "measured" and f["what"] == "takeover"],
    }
