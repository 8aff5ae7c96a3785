"""Laws of devices: leases, and one runner inside at a time."""

import itertools
from collections import defaultdict
from collections.abc import Iterable

from verification.chaos.evidence import intervals
from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import Entry


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
