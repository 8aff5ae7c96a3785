"""Which software each worker runs, and where that differs from the rest of the fleet. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from console.board.rows import WorkerRow

NAMES: Final = {"software": "Signalbox", "tensorflow": "TensorFlow", "driver": "NVIDIA driver", "cuda": "CUDA"}
"""Fields of a worker's row, and what they are called."""


class Software(NamedTuple):
    """A program with its version on one worker. usual: what most others run where this one does not, else empty."""

    name: str
    version: str
    usual: str


def of(row: WorkerRow, rows: Iterable[WorkerRow]) -> list[Software]:
    """What a worker runs, beside what the fleet's other workers run."""
    here = [each for each in rows if each.state != "lost"]
    found = []
    for field, name in NAMES.items():
        version: str = getattr(row, field)
        counted = Counter(getattr(each, field) for each in here if getattr(each, field))
        usual = max(counted, key=lambda each: (counted[each], each == version), default=version)
        if version:
            found.append(Software(name, version, usual if usual != version else ""))
    return found


def differing(rows: Iterable[WorkerRow]) -> dict[str, dict[str, list[str]]]:
    """What workers that are here do not all have alike: by program its versions, and who runs each."""
    here = sorted((each for each in rows if each.state != "lost"), key=lambda each: each.id)
    found: dict[str, dict[str, list[str]]] = {}
    for field, name in NAMES.items():
        by_version: dict[str, list[str]] = {}
        for row in here:
            if version := getattr(row, field):
                by_version.setdefault(version, []).append(row.id)
        if len(by_version) > 1:
            found[name] = by_version
    return found
