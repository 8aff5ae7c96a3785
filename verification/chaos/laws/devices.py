"""Laws of devices: leases, one runner inside at a time, and processes that outlive their parent."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from verification.chaos.evidence import intervals
from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import Entry

ORPHAN_S: Final = 10.0
"""A runner may outlive its guard for so long: the promise is 1 s, the rest is the census' and a busy machine's.

An orphan that stays, stays longer."""


def lease_chain(h: History) -> list[str]:
    """Each revision follows the one before, a stay keeps its token and owner, a new one gets a greater token."""
    found = []
    for gpu, chain in _by_gpu(h.leases).items():
        highest = 0
        for before, after in itertools.pairwise([{"seq": 0, "state": "GONE"}, *chain]):
            if after["last"] > before["seq"]:  # a gap: steps were not seen
                highest = max(highest, after.get("token", 0) - 1)
            elif after["last"] != before["seq"]:
                found.append(f"{gpu}: revision {after['seq']} follows {after['last']}, not {before['seq']}")
            if after["state"] != "HELD":
                continue
            is_same_stay = before["state"] == "HELD" and before["boot"] == after["boot"]
            if is_same_stay and after["last"] == before["seq"] and after["beats"] > before["beats"]:
                if after["token"] < before["token"]:
                    found.append(f"{gpu}: a stay's token fell from {before['token']} to {after['token']}")
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
    """No two runners used a device at once, by the runners' own clock and by an independent lock."""
    return intervals.violations(list(h.intervals))


def orphans(h: History) -> list[str]:
    """No runner outlives its guard, no guard its supervisor (unless a fault froze it)."""
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
