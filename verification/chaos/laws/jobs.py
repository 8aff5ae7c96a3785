"""Laws of jobs: what was accepted, how it ended, and what clients were told."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from verification.chaos.evidence.history import ENDED, History, accepted
from verification.chaos.evidence.journal import Entry

CANARY_Y: Final = 31337.25 / 2 + 2
"""What becomes of the one number that callers send again and again."""
STEPS: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"running", "queued", *ENDED}),
    "queued": frozenset({"running", *ENDED}),
    "running": frozenset({"running", "queued", *ENDED}),
}
"""What may follow a state; nothing follows an end."""
FAIR: Final = frozenset({0, 200, 202, 409, 503, 504})
"""What a good key may be answered while things break; 0 is no answer at all."""


def lost_accepted(h: History) -> list[str]:
    """Every accepted job has a record that says how it ended."""
    ends = {entry["job"]: entry["state"] for entry in h.final if "job" in entry}
    return [
        f"{job} was accepted at {answer['at']:.3f} and is {ends.get(job, 'nowhere')} at the end"
        for job, answer in accepted(h.ledger).items()
        if ends.get(job) not in ENDED
    ]


def open_jobs(h: History) -> list[str]:
    """No job is left open, also none that was stored without an acknowledgement to a client."""
    found = [
        f"{entry['job']} is {entry['state']} at the end"
        for entry in h.final
        if "job" in entry and entry["state"] not in ENDED
    ]
    for entry in h.final:
        found += [f"{name} still holds {n} jobs" for name, n in entry.get("left", {}).items()]
    return found


def double_terminal(h: History) -> list[str]:
    """The first end a job gets is its only one, for its record and for every client that asked."""
    ends: dict[str, Entry] = {}
    found = []
    for entry in sorted(h.records, key=lambda e: e["seq"]):
        first = ends.get(entry["job"])
        if first is not None and entry["seq"] > first["seq"]:
            found.append(f"{entry['job']} was {first['state']} and then {entry['state']}")
        elif entry["state"] in ENDED:
            ends.setdefault(entry["job"], entry)
    final = {entry["job"]: entry for entry in h.final if "job" in entry}
    for job, first in ends.items():
        last = final.get(job)
        if last is None or (last["seq"], last["state"]) != (first["seq"], first["state"]):
            found.append(f"{job} ended as {first['state']} and is {last} at the end")
    for job, reported in _ends_seen(h.ledger).items():
        known = {*reported, final[job]["state"]} if job in final else set(reported)
        if len(known) > 1:
            found.append(f"{job} was shown to its owner as {' and '.join(sorted(known))}")
    return found


def _ends_seen(ledger: Iterable[Entry]) -> dict[str, list[str]]:
    """What clients were told of each job's end, in the order they were told."""
    reported: defaultdict[str, list[str]] = defaultdict(list)
    for entry in ledger:
        if entry["event"] != "intent" and entry.get("state") in ENDED:
            reported[entry["job"]].append(entry["state"])
    return reported


def doubled_submits(h: History) -> list[str]:
    """One Idempotency-Key is one job; and no caller's number, each sent once, is computed for two jobs."""
    by_key: defaultdict[str, set[str]] = defaultdict(set)
    for entry in h.ledger:
        if entry["event"] == "answer" and entry.get("once") and entry["status"] in {200, 202}:
            by_key[entry["once"]].add(entry["job"])
    found = [f"{once} gave {' and '.join(sorted(jobs))}" for once, jobs in by_key.items() if len(jobs) > 1]
    computed = Counter(
        entry["y"]
        for entry in h.final
        if entry.get("y") is not None and entry["model"] == "half" and entry["y"] != CANARY_Y
    )
    return found + [f"{y} was computed for {n} jobs" for y, n in computed.items() if n > 1]


def wrong_results(h: History) -> list[str]:
    """Who was answered was answered right, and what is stored is the answer to what was asked."""
    wanted: dict[str, float] = {}
    found = []
    for entry in h.ledger:
        if entry["event"] == "answer" and entry.get("job"):
            wanted[entry["job"]] = entry["expect"]
        if entry.get("y") is not None and entry["y"] != entry["expect"]:
            found.append(f"{entry.get('job')} gave {entry['y']} instead of {entry['expect']}")
    return found + [
        f"{entry['job']} stored {entry['y']} instead of {wanted[entry['job']]}"
        for entry in h.final
        if entry.get("y") is not None and entry["y"] != wanted.get(entry["job"], entry["y"])
    ]


def wrong_answers(h: History) -> list[str]:
    """Outages of ours are 503 and 504: never a 401 or 403 to a good key, never a 500, never a failed job."""
    answers = [
        f"{entry['op']} was answered {entry['status']} at {entry['at']:.3f}: {entry.get('text', '')}"
        for entry in h.ledger
        if entry["event"] == "answer" and entry["status"] not in FAIR
    ]
    return answers + [
        f"{entry['job']} is {entry['state']} ({entry['why']}) after {entry['attempt']} attempts"
        for entry in h.final
        if entry.get("state") in {"failed", "expired"}
    ]


def dead_ends(h: History) -> list[str]:
    """Who is refused while things break is told when to ask again; so says docs/errors.md of what is retryable."""
    return [
        f"{entry['op']} was answered {entry['status']} at {entry['at']:.3f} without Retry-After: "
        f"{entry.get('text', '')}"
        for entry in h.ledger
        if entry["event"] == "answer" and entry["status"] in FAIR and entry.get("again") == ""
    ]


def foreign_reads(h: History) -> list[str]:
    """A read of another account's job is answered 404, or not at all while the front is down."""
    return [
        f"{entry['client']} asked for {entry['job']}, which is not its own, and got {entry['status']}"
        for entry in h.ledger
        if entry["event"] == "foreign" and entry["status"] not in {0, 404, 503}
    ]


def illegal_transitions(h: History) -> list[str]:
    """Every step of a record is a legal one; a gap may hide steps, it does not excuse what is seen."""
    last: dict[str, Entry] = {}
    found = []
    for entry in sorted(h.records, key=lambda e: e["seq"]):
        before = last.get(entry["job"])
        is_step = entry["last"] == (before["seq"] if before else 0)
        state = before["state"] if before else ""
        if is_step and entry["state"] not in STEPS.get(state, frozenset()):
            found.append(f"{entry['job']} went from {state or 'nothing'} to {entry['state']}")
        if before is not None and entry["attempt"] < before["attempt"]:
            found.append(f"{entry['job']} went from attempt {before['attempt']} to {entry['attempt']}")
        if (
            before is not None
            and is_step
            and state == "running"
            and entry["state"] == "running"
            and entry["attempt"] == before["attempt"]
            and not entry["cancel"]
        ):
            found.append(f"{entry['job']} was claimed twice as attempt {entry['attempt']}")
        last[entry["job"]] = entry
    return found


def stale_tokens(h: History) -> list[str]:
    """No record is written under a token older than the one its GPU had in an earlier revision of the same job."""
    found = []
    tokens: dict[tuple[str, str], int] = {}
    for entry in sorted(h.records, key=lambda e: e["seq"]):
        if not entry["gpu"] or not entry["token"]:
            continue
        known = tokens.get((entry["job"], entry["gpu"]), 0)
        if entry["token"] < known:
            found.append(f"{entry['job']} went back from token {known} to {entry['token']}")
        tokens[entry["job"], entry["gpu"]] = max(known, entry["token"])
    return found
