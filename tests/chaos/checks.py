"""The laws a history must obey: pure functions over its files, so that any run can be judged again later.

``python -m tests.chaos judge --folder FOLDER`` does. Each law takes a :class:`History` and returns what broke it, in
words. Sources: S1 to S12 and V1 to V3 of docs/guarantees.md.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.canaries import leaks
from tests.chaos import history
from tests.chaos.history import Entry
from workers import intervals
from workers.intervals import Line

ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})
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
ORPHAN_S: Final = 10.0
"""A runner may outlive its guard for so long: the promise is 1 s, the rest is the census' and a busy machine's.

An orphan that stays, stays longer."""
SETTLING_S: Final = 30.0
"""So long after its end a fault excuses the order of the line, where a run does not say how long its settings need."""
BEFORE_S: Final = 2.0
"""A ticket stands in the line for everybody so long after it was written."""


class Violation(NamedTuple):
    """law: its name. text: what happened."""

    law: str
    text: str


class History(NamedTuple):
    """Everything a run wrote down. logs: text of every log file by name; secrets: what none may hold."""

    ledger: Sequence[Entry] = ()
    records: Sequence[Entry] = ()
    leases: Sequence[Entry] = ()
    waiters: Sequence[Entry] = ()
    processes: Sequence[Entry] = ()
    faults: Sequence[Entry] = ()
    final: Sequence[Entry] = ()
    intervals: Sequence[Line] = ()
    logs: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}

    @classmethod
    def of_run(cls, folder: Path) -> "History":
        """Read all that a run left in its folder, logs and what must not stand in them too."""
        known = folder / history.SECRETS
        return cls.of(
            folder / "history",
            logs=sorted((folder / "data" / "logs").glob("*.log*")),
            secrets=json.loads(known.read_text()) if known.exists() else {},
        )

    @classmethod
    def of(
        cls, folder: Path, *, logs: Iterable[Path] = (), secrets: Mapping[str, str] = {}
    ) -> "History":
        """Read a folder."""
        names = ("ledger", "records", "leases", "waiters", "processes", "faults", "final")
        return cls(
            **{name: history.read(folder / f"{name}.jsonl") for name in names},
            intervals=intervals.read(folder / "intervals.log"),
            logs={path.name: path.read_text(errors="replace") for path in logs},
            secrets=secrets,
        )


# -- what a disk that lied takes away ----------------------------------------------------------------


def remembered(h: History) -> History:
    """A history without what a disk forgot (``forgot`` in ``faults.jsonl``): that never happened.

    Jobs that were promised meanwhile are excused, also those whose place in the queue was a forgotten job's before;
    so are ends that were shown meanwhile. What runners did to a device is not, whatever was forgotten.
    """
    gaps = [fault for fault in h.faults if fault["event"] == "forgot"]
    if not gaps:
        return h

    def is_between(entry: Entry, until: str = "until") -> bool:
        asked = entry.get("asked", entry["at"])
        return any(gap["since"] <= entry["at"] and asked <= gap[until] for gap in gaps)

    promises = accepted(h.ledger)
    excused = {job for job, promise in promises.items() if is_between(promise, "reused_until")}
    told = [
        {**entry, "state": ""} if "state" in entry and is_between(entry) else entry
        for entry in h.ledger
        if entry["event"] == "foreign" or excused.isdisjoint((entry.get("job"), entry.get("about")))
    ]
    return h._replace(
        ledger=told,
        records=[e for e in h.records if not (e["job"] in excused or is_between(e))],
        leases=[e for e in h.leases if not is_between(e)],
        waiters=[e for e in h.waiters if not is_between(e)],
        final=[e for e in h.final if e.get("job") not in excused],
    )


# -- what the ledger says ----------------------------------------------------------------------------


def accepted(ledger: Iterable[Entry]) -> dict[str, Entry]:
    """Jobs that were promised to somebody, with the answer that did: a 202, or a result that names its job."""
    found: dict[str, Entry] = {}
    for entry in ledger:
        if entry["event"] == "answer" and entry.get("job") and entry["status"] in {200, 202, 504}:
            found.setdefault(entry["job"], entry)
    return found


def _ends_seen(ledger: Iterable[Entry]) -> dict[str, list[str]]:
    """What clients were told of each job's end, in the order they were told."""
    told: defaultdict[str, list[str]] = defaultdict(list)
    for entry in ledger:
        if entry["event"] != "intent" and entry.get("state") in ENDED:
            told[entry["job"]].append(entry["state"])
    return told


def lost_accepted(h: History) -> list[str]:
    """Every accepted job has a record that says how it ended."""
    ends = {entry["job"]: entry["state"] for entry in h.final if "job" in entry}
    return [
        f"{job} was accepted at {answer['at']:.3f} and is {ends.get(job, 'nowhere')} at the end"
        for job, answer in accepted(h.ledger).items()
        if ends.get(job) not in ENDED
    ]


def open_jobs(h: History) -> list[str]:
    """Nothing is left open, not even what nobody was promised."""
    found = [
        f"{entry['job']} is {entry['state']} at the end"
        for entry in h.final
        if "job" in entry and entry["state"] not in ENDED
    ]
    for entry in h.final:
        found += [f"{name} still holds {n} jobs" for name, n in entry.get("left", {}).items()]
    return found


def double_terminal(h: History) -> list[str]:
    """The first end a job gets is its only one, for its record and for everybody who asked."""
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
    for job, told in _ends_seen(h.ledger).items():
        known = {*told, final[job]["state"]} if job in final else set(told)
        if len(known) > 1:
            found.append(f"{job} was shown to its owner as {' and '.join(sorted(known))}")
    return found


def doubled_submits(h: History) -> list[str]:
    """One Idempotency-Key is one job; and no caller's number, each sent once, is computed for two jobs."""
    by_key: defaultdict[str, set[str]] = defaultdict(set)
    for entry in h.ledger:
        if entry["event"] == "answer" and entry.get("once") and entry["status"] in {200, 202}:
            by_key[entry["once"]].add(entry["job"])
    found = [
        f"{once} gave {' and '.join(sorted(jobs))}"
        for once, jobs in by_key.items()
        if len(jobs) > 1
    ]
    computed = Counter(
        entry["y"] for entry in h.final
        if entry.get("y") is not None and entry["model"] == "half" and entry["y"] != CANARY_Y
    )  # fmt: skip
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


def foreign_reads(h: History) -> list[str]:
    """Somebody else's job is 404, or nothing at all while we are away."""
    return [
        f"{entry['client']} asked for {entry['job']}, which is not its own, and got {entry['status']}"
        for entry in h.ledger
        if entry["event"] == "foreign" and entry["status"] not in {0, 404, 503}
    ]


# -- what the flight recorder says -------------------------------------------------------------------


def illegal_transitions(h: History) -> list[str]:
    """Every step of a record is one that the design knows; a gap may hide steps, it does not excuse what is seen."""
    last: dict[str, Entry] = {}
    found = []
    for entry in sorted(h.records, key=lambda e: e["seq"]):
        before = last.get(entry["job"])
        is_step = entry["last"] == (before["seq"] if before else 0)
        state = before["state"] if before else ""
        if is_step and entry["state"] not in STEPS.get(state, frozenset()):
            found.append(f"{entry['job']} went from {state or 'nothing'} to {entry['state']}")
        if before is not None and entry["attempt"] < before["attempt"]:
            found.append(
                f"{entry['job']} went from attempt {before['attempt']} to {entry['attempt']}"
            )
        if (
            before is not None and is_step and state == "running" and entry["state"] == "running"
            and entry["attempt"] == before["attempt"] and not entry["cancel"]
        ):  # fmt: skip
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


def lease_chain(h: History) -> list[str]:
    """Each revision follows the one before, a stay keeps its token and owner, a new one gets a greater token."""
    found = []
    for gpu, chain in _by_gpu(h.leases).items():
        highest = 0
        for before, after in itertools.pairwise([{"seq": 0, "state": "GONE"}, *chain]):
            if after["last"] > before["seq"]:  # a gap: steps were not seen
                highest = max(highest, after.get("token", 0) - 1)
            elif after["last"] != before["seq"]:
                found.append(
                    f"{gpu}: revision {after['seq']} follows {after['last']}, not {before['seq']}"
                )
            if after["state"] != "HELD":
                continue
            is_same_stay = before["state"] == "HELD" and before["boot"] == after["boot"]
            if is_same_stay and after["last"] == before["seq"] and after["beats"] > before["beats"]:
                if after["token"] < before["token"]:
                    found.append(
                        f"{gpu}: a stay's token fell from {before['token']} to {after['token']}"
                    )
            elif after["beats"] == 0 and after["token"] <= highest:
                found.append(f"{gpu}: {after['owner']} got token {after['token']} after {highest}")
            highest = max(highest, after["token"])
    return found


def _by_gpu(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: defaultdict[str, dict[int, Entry]] = defaultdict(dict)
    for entry in entries:
        found[entry["gpu"]][entry["seq"]] = entry
    return {gpu: [by_seq[seq] for seq in sorted(by_seq)] for gpu, by_seq in found.items()}


def overlaps(h: History) -> list[str]:
    """Nobody used a device while another did, by the runners' own clock and by an independent lock."""
    return intervals.violations(list(h.intervals))


class Release(NamedTuple):
    """A device that was given up in order, for a waiter. named: whose ticket. waiting: those that stood unharmed."""

    at: float
    named: "_Stand"
    waiting: list["_Stand"]
    is_judged: bool


def releases(h: History) -> list[Release]:
    """Every orderly release for a ticket that stood.

    Harm to the waiter, to who released or to NATS excuses: none of them need have known the line.
    """
    found = []
    lines = _standing(h.waiters)
    owners = {lease["boot"]: lease["owner"] for lease in h.leases if lease["state"] == "HELD"}
    harms = _harms(h)
    for lease in h.leases:
        if lease["state"] != "FREE" or not lease.get("next"):
            continue
        at, gpu = lease["at"], lease["gpu"]
        standing = [t for t in lines if t.gpu == gpu and t.since <= at < t.until + BEFORE_S]
        named = next((t for t in standing if t.worker == lease["next"]), None)
        if named is None:
            continue
        harmed = {who for who, t_in, t_out in harms if t_in <= at <= t_out}
        is_excused = bool(harmed & {"all", owners.get(lease["boot"], "")})
        waiting = [
            t for t in standing
            if t.since + BEFORE_S < at < t.until - BEFORE_S and t.worker not in harmed
        ]  # fmt: skip
        found.append(Release(at, named, waiting, not is_excused))
    return found


def contests(h: History) -> list[Release]:
    """Those that are judged and where another could have been named: where none was, nobody could be overtaken."""
    return [r for r in releases(h) if r.is_judged and any(t != r.named for t in r.waiting)]


def _harms(h: History) -> list[tuple[str, float, float]]:
    """Whom the faults harmed, from when until when."""
    settling_s = next((f["settling_s"] for f in h.faults if f["event"] == "world"), SETTLING_S)
    begun: dict[tuple[str, str], float] = {}
    found = []
    for fault in h.faults:
        about = (fault.get("target", ""), fault.get("kind", ""))
        if fault["event"] == "begin":
            begun[about] = fault["at"]
        elif fault["event"] == "end":
            began = begun.pop(about, fault["at"])
            found.append((about[0], began - 1.0, fault["at"] + settling_s))
    return found + [(target, at - 1.0, float("inf")) for (target, _), at in begun.items()]


def overtakes(h: History) -> Counter[tuple[str, int]]:
    """How often each ticket saw a later one named by an orderly release, while it stood in the line unharmed."""
    return Counter(
        (ticket.worker, ticket.number)
        for release in releases(h) if release.is_judged
        for ticket in release.waiting if ticket.number < release.named.number
    )  # fmt: skip


class _Stand(NamedTuple):
    gpu: str
    worker: str
    number: int
    since: float
    until: float


def _standing(waiters: Iterable[Entry]) -> list[_Stand]:
    """Every ticket with the time it stood."""
    found: list[_Stand] = []
    open_: dict[tuple[str, str], tuple[int, float]] = {}
    for entry in sorted(waiters, key=lambda e: e["seq"]):
        key = (entry["gpu"], entry["worker"])
        known = open_.get(key)
        if known is not None and known[0] != entry["number"]:
            found.append(_Stand(*key, known[0], known[1], entry["at"]))
            del open_[key]
        if entry["number"] and key not in open_:
            open_[key] = (entry["number"], entry["at"])
    found += [_Stand(*key, n, since, float("inf")) for key, (n, since) in open_.items()]
    return found


def starved_waiters(h: History) -> list[str]:
    """No ticket is overtaken more than once by a later one (V2)."""
    return [
        f"ticket {number} of {worker} was overtaken {times} times"
        for (worker, number), times in overtakes(h).items()
        if times > 1
    ]


# -- what the kernel says ----------------------------------------------------------------------------


def orphans(h: History) -> list[str]:
    """No runner outlives its guard, no guard its supervisor (unless somebody froze it)."""
    found = []
    born: dict[int, Entry] = {}
    deaths: defaultdict[int, list[float]] = defaultdict(list)
    for entry in h.processes:
        if entry["event"] == "death":
            deaths[entry["pid"]].append(entry["at"])
    end = max((entry["at"] for entry in h.processes), default=0.0)
    frozen = [
        (fault.get("pid", 0), fault["at"], fault.get("until", fault["at"] + 60.0))
        for fault in h.faults
        if fault["event"] == "begin" and fault["kind"].startswith("freeze")
    ]
    for entry in h.processes:
        if entry["event"] != "birth":
            continue
        born[entry["pid"]] = entry
        parent = born.get(entry["parent"])
        if entry["role"] not in {"runner", "guard"} or parent is None:
            continue
        parent_died = _after(deaths[parent["pid"]], parent["at"])
        died = _after(deaths[entry["pid"]], entry["at"])
        if parent_died is None or (died if died is not None else end) <= parent_died + ORPHAN_S:
            continue
        if not any(pid == entry["pid"] and t < (died or end) for pid, t, _ in frozen):
            found.append(
                f"{entry['role']} {entry['pid']} outlived its {parent['role']} {parent['pid']} by"
                f" {(died or end) - parent_died:.1f} s"
            )
    return found


def _after(times: Iterable[float], at: float) -> float | None:
    return min((t for t in times if t >= at), default=None)


def secrets_in_logs(h: History) -> list[str]:
    """No log holds a key, a password, the pepper or a caller's number, in whatever shape."""
    return [f"{leak.place} holds {leak.name}, {leak.shape}" for leak in leaks(h.logs, h.secrets)]


# -- bounds ------------------------------------------------------------------------------------------


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
    "lost accepted": lost_accepted,
    "jobs left open": open_jobs,
    "double terminal": double_terminal,
    "doubled submits": doubled_submits,
    "wrong results": wrong_results,
    "wrong answers": wrong_answers,
    "illegal transitions": illegal_transitions,
    "stale tokens": stale_tokens,
    "lease chain": lease_chain,
    "overlaps": overlaps,
    "orphans": orphans,
    "starved waiters": starved_waiters,
    "foreign reads": foreign_reads,
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
        "starved waiters": "" if contests(h) else "no release found a second waiter unharmed",
        "overlaps": "" if h.intervals else "no runner was let in",
        "secrets in logs": "" if h.logs and h.secrets else "the run did not keep its logs or its secrets",
    }  # fmt: skip
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
