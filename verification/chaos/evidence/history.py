"""Reads the whole history of a run back, for the laws to judge."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from verification.chaos.evidence import intervals, journal
from verification.chaos.evidence.journal import Entry
from workers.runner.intervals import DeviceInterval

ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})


class History(NamedTuple):
    """Everything a run wrote down. logs: text of every log file by name; secrets: what none may hold."""

    ledger: Sequence[Entry] = ()
    records: Sequence[Entry] = ()
    leases: Sequence[Entry] = ()
    faults: Sequence[Entry] = ()
    final: Sequence[Entry] = ()
    intervals: Sequence[DeviceInterval] = ()
    logs: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}

    @classmethod
    def of_run(cls, folder: Path) -> "History":
        """Read all that a run left in its folder, logs and what must not stand in them too."""
        known = folder / journal.SECRETS
        return cls.of(
            folder / "history",
            logs=sorted((folder / "data" / "logs").glob("*.log*")),
            secrets=json.loads(known.read_text()) if known.exists() else {},
        )

    @classmethod
    def of(cls, folder: Path, *, logs: Iterable[Path] = (), secrets: Mapping[str, str] = {}) -> "History":
        """Read a folder."""
        names = ("ledger", "records", "leases", "faults", "final")
        return cls(
            **{name: journal.read(folder / f"{name}.jsonl") for name in names},
            intervals=intervals.read(folder / "intervals.log"),
            logs={path.name: path.read_text(errors="replace") for path in logs},
            secrets=secrets,
        )


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
    reported = [
        {**entry, "state": ""} if "state" in entry and is_between(entry) else entry
        for entry in h.ledger
        if entry["event"] == "foreign" or excused.isdisjoint((entry.get("job"), entry.get("about")))
    ]
    return h._replace(
        ledger=reported,
        records=[e for e in h.records if not (e["job"] in excused or is_between(e))],
        leases=[e for e in h.leases if not is_between(e)],
        final=[e for e in h.final if e.get("job") not in excused],
    )


def accepted(ledger: Iterable[Entry]) -> dict[str, Entry]:
    """Accepted jobs, each with the answer that promised it: a 202, or a result that names its job."""
    found: dict[str, Entry] = {}
    for entry in ledger:
        if entry["event"] == "answer" and entry.get("job") and entry["status"] in {200, 202, 504}:
            found.setdefault(entry["job"], entry)
    return found
