"""The laws a history must obey: pure functions over its files, so that any run can be judged again later.

``python -m verification.chaos judge --folder FOLDER`` does. Each law takes a :class:`History` and returns what broke
it, in words. The other modules of this folder hold the laws of jobs and devices, this one those of the run itself.
Sources: S1 to S12, V1 and V3 of docs/guarantees.md.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.rigs.canaries import leaks
from verification.chaos.evidence.history import History, accepted, remembered
from verification.chaos.evidence.journal import Entry
from verification.chaos.laws import devices, jobs


class Violation(NamedTuple):
    """law: its name. text: what happened."""

    law: str
    text: str


def secrets_in_logs(h: History) -> list[str]:
    """No log holds a key, a password, the pepper or a caller's number, in whatever shape."""
    return [f"{leak.place} holds {leak.name}, {leak.shape}" for leak in leaks(h.logs, h.secrets)]


def bounds(h: History) -> list[str]:
    """What a fault measured stays within the bound it was given."""
    return [
        f"{fault['kind']} of {fault['target']}: {fault['what']} took {fault['s']:.2f} s, {fault['bound_s']:g} s allowed"
        for fault in h.faults
        if fault["event"] == "measured" and fault["s"] > fault["bound_s"]
    ]


def findings(h: History) -> list[str]:
    """What the run itself saw and that must not be, and what failed in its background."""
    return [str(fault["text"]) for fault in h.faults if fault["event"] == "finding"]


LAWS: Final[Mapping[str, Callable[[History], list[str]]]] = {
    "lost accepted": jobs.lost_accepted,
    "jobs left open": jobs.open_jobs,
    "double terminal": jobs.double_terminal,
    "doubled submits": jobs.doubled_submits,
    "wrong results": jobs.wrong_results,
    "wrong answers": jobs.wrong_answers,
    "dead ends": jobs.dead_ends,
    "illegal transitions": jobs.illegal_transitions,
    "stale tokens": jobs.stale_tokens,
    "lease chain": devices.lease_chain,
    "overlaps": devices.overlaps,
    "foreign reads": jobs.foreign_reads,
    "secrets in logs": secrets_in_logs,
    "bounds": bounds,
    "findings": findings,
}


def check(h: History) -> list[Violation]:
    """Every law, over what no disk that lied has taken away."""
    h = remembered(h)
    return [Violation(name, text) for name, law in LAWS.items() for text in law(h)]


def unjudged(h: History) -> dict[str, str]:
    """Laws that could not be broken, whatever happened, with what is missing."""
    missing = {
        "lost accepted": "" if accepted(h.ledger) else "no job was accepted",
        "overlaps": "" if h.intervals else "no runner was let in",
        "secrets in logs": "" if h.logs and h.secrets else "the run did not keep its logs or its secrets",
    }
    return {law: why for law, why in missing.items() if why}


def measured(h: History) -> dict[str, list[float]]:
    """Seconds of everything that was measured, by ``kind: what``."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for fault in h.faults:
        if fault["event"] == "measured":
            found[f"{fault['kind']}: {fault['what']}"].append(fault["s"])
    return dict(found)


def longest_silence(ledger: Iterable[Entry], since: float, until: float) -> float:
    """Seconds of the longest time between two jobs that were promised, between two instants."""
    promised = sorted(float(entry["at"]) for entry in accepted(ledger).values())
    times = [since, *(at for at in promised if since < at < until), until]
    return max(after - before for before, after in itertools.pairwise(times))


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; NaN of nothing."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("nan")
