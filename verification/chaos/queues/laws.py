"""What a run must obey, as pure functions over what was seen.

Left out on purpose: what was committed in the last seconds before NATS itself was killed may come again (docs/eas.md),
and what a gateway has in its buffers that was stopped, or cut off, for longer than NATS waits, is given on after that.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from verification.chaos.queues.evidence import LONG_S, Commit, Evidence, Fault, Receipt
from verification.chaos.queues.site import GROUPS

FLUSH_S: Final = 2.0
"""Acknowledgements are on NATS's disk after so long."""
SPARE_S: Final = 2.0
"""An item may lie in a gateway for so long before it is given to a watch."""
AFTER_S: Final = 10.0
"""What a fault leaves behind is over after so long."""


def lost(found: Evidence) -> list[str]:
    """Every item that was accepted, and every one that was ever given out, is committed by every group."""
    committed: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for commit in found.commits:
        committed[commit.queue, commit.group].update(commit.indexes)
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for (queue, _), index in found.put.items():
        wanted[queue].add(index)
    for receipt in found.receipts:
        wanted[receipt.queue].add(receipt.index)
    return [
        f"{queue}, group {group}: {len(missing)} items were not committed, {sorted(missing)[:10]}"
        for queue, indexes in sorted(wanted.items())
        for group in GROUPS
        if (missing := indexes - committed[queue, group])
    ]


def doubled(found: Evidence) -> list[str]:
    """A number is stored once, but for puts whose answer left that open."""
    indexes: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for receipt in found.receipts:
        indexes[receipt.queue, receipt.number].add(receipt.index)
    return [
        f"{queue}: number {number} is stored as {sorted(places)}"
        for (queue, number), places in indexes.items()
        if len(places) > 1 and (queue, number) not in found.perhaps
    ]


def changed(found: Evidence) -> list[str]:
    """An item has the index and the rank that its put was told."""
    return [
        f"{one.queue}: number {one.number} came as {one.index}, {one.rank}"
        for one in found.receipts
        if (one.rank != found.ranks[one.queue, one.number])
        or ((one.queue, one.number) not in found.perhaps and found.put.get((one.queue, one.number)) != one.index)
    ]


def again(found: Evidence) -> list[str]:
    """Nothing is given to a watch that was opened after the item's commit was answered."""
    first: dict[tuple[str, str, int], float] = {}
    for commit in found.commits:
        for index in commit.indexes:
            first.setdefault((commit.queue, commit.group, index), commit.at)
    broken = []
    for one in found.receipts:
        at = first.get((one.queue, one.group, one.index))
        if at is not None and one.link_at > at + SPARE_S and not _is_excused(found, at, one.at):
            broken.append(
                f"{one.queue}, group {one.group}: {one.index} was given out {one.at - at:.2f} s after its commit"
            )
    return broken


def windows(found: Evidence) -> list[str]:
    """No consumer holds more than its window that nobody has asked to commit, but where NATS has given it to others."""
    held: defaultdict[tuple[str, str], dict[int, set[int]]] = defaultdict(dict)
    asked: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    events: list[tuple[float, Receipt | Commit]] = [(one.at, one) for one in found.receipts]
    events += [(one.asked_at, one) for one in found.commits]
    broken = []
    for _, one in sorted(events, key=lambda event: event[0]):
        links = held[one.queue, one.group]
        if isinstance(one, Commit):
            asked[one.queue, one.group].update(one.indexes)
            for pending in links.values():
                pending.difference_update(one.indexes)
            continue
        pending = links.setdefault(one.link, set())
        if one.index not in asked[one.queue, one.group]:
            pending.add(one.index)
        if len(pending) > one.window and not any(_overlaps(fault, one.link_at, one.at) for fault in _long(found)):
            broken.append(f"{one.queue}, {one.group}.{one.uid}: {len(pending)} of {one.window} after {one.index}")
    return broken


def quiet(found: Evidence) -> list[str]:
    """Before the first fault each item comes once to each group, and in each watch by index within its rank."""
    calm = [one for one in found.receipts if one.at < found.quiet_until]
    times = Counter((one.queue, one.group, one.index) for one in calm)
    broken = [f"{key} was given out {count} times without a fault" for key, count in times.items() if count > 1]
    newest: dict[tuple[int, str], int] = {}
    for one in calm:
        before = newest.get((one.link, one.rank), 0)
        if one.index < before:
            broken.append(f"{one.queue}, {one.group}.{one.uid}: {one.index} came after {before}")
        newest[one.link, one.rank] = max(before, one.index)
    return broken


def conflicts(found: Evidence) -> list[str]:
    """No commit of what was given is refused as not given, but shortly after NATS was killed."""
    killed = [fault for fault in found.faults if fault.kind == "kill nats"]
    return [
        f"A commit was refused with 409 at {at:.2f}"
        for at in found.conflicts
        if not any(fault.began - FLUSH_S <= at <= fault.ended + AFTER_S for fault in killed)
    ]


def findings(found: Evidence) -> list[str]:
    """What the run itself saw and that must not be."""
    return found.findings


LAWS: Final[Mapping[str, Callable[[Evidence], list[str]]]] = {
    "lost": lost,
    "doubled": doubled,
    "changed": changed,
    "given again after its commit": again,
    "windows": windows,
    "quiet": quiet,
    "conflicts": conflicts,
    "findings": findings,
}


def _long(found: Evidence) -> Iterator[Fault]:
    return (fault for fault in found.faults if fault.ended - fault.began >= LONG_S)


def _overlaps(fault: Fault, began: float, ended: float) -> bool:
    return fault.began <= ended and began <= fault.ended + AFTER_S


def _is_excused(found: Evidence, committed: float, given: float) -> bool:
    """Whether NATS may have forgotten a commit, or a gateway had the item since before."""
    killed = (fault for fault in found.faults if fault.kind == "kill nats")
    is_forgotten = any(committed - 0.1 <= fault.ended and fault.began <= committed + FLUSH_S for fault in killed)
    return is_forgotten or any(_overlaps(fault, committed, given) for fault in _long(found))
