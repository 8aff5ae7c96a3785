"""The laws of queues under faults: each holds over a sound run, and is broken by what it is about."""

from collections.abc import Callable

import pytest

from verification.chaos.queues import laws
from verification.chaos.queues.evidence import Commit, Evidence, Fault, Receipt
from verification.chaos.queues.site import GROUPS
from verification.chaos.queues.traffic import frame

QUEUE = "queue-0"


def receipt(
    at: float, index: int, *, group: str = "eas", link: int = 1, link_at: float = 0.0, window: int = 2
) -> Receipt:
    return Receipt(at, QUEUE, group, "me", link, link_at, index, index, "lo", window)


def commit(at: float, *indexes: int, group: str = "eas") -> Commit:
    return Commit(at, at + 0.1, QUEUE, group, indexes)


def sound() -> Evidence:
    """Two items, which each group has been given and has committed."""
    found = Evidence()
    found.quiet_until = 50.0
    for index in (1, 2):
        found.put[QUEUE, index] = index
        found.ranks[QUEUE, index] = "lo"
    for number, group in enumerate(GROUPS):
        found.receipts += [receipt(float(index), index, group=group, link=number) for index in (1, 2)]
        found.commits.append(commit(3.0, 1, 2, group=group))
    return found


def broken(found: Evidence) -> set[str]:
    return {name for name, law in laws.LAWS.items() if law(found)}


def lose(found: Evidence) -> None:
    found.commits[-1] = commit(3.0, 1, group=GROUPS[-1])


def lose_what_was_seen_only(found: Evidence) -> None:
    found.perhaps.add((QUEUE, 3))
    found.ranks[QUEUE, 3] = "lo"
    found.receipts.append(receipt(60.0, 3))


def double(found: Evidence) -> None:
    found.receipts.append(Receipt(60.0, QUEUE, "eas", "me", 1, 0.0, 2, 1, "lo", 2))


def rank(found: Evidence) -> None:
    found.ranks[QUEUE, 1] = "hi"


def give_again(found: Evidence) -> None:
    found.receipts.append(receipt(60.0, 1, link=9, link_at=59.0))


def overfill(found: Evidence) -> None:
    found.receipts = [receipt(1.0, 1, window=1), receipt(2.0, 2, window=1), *found.receipts[2:]]


def disorder(found: Evidence) -> None:
    found.receipts[:2] = [receipt(1.0, 2), receipt(2.0, 1)]


def repeat(found: Evidence) -> None:
    found.receipts.insert(1, receipt(1.5, 1))


def refuse(found: Evidence) -> None:
    found.conflicts.append(60.0)


def find(found: Evidence) -> None:
    found.findings.append("odd")


def test_a_sound_run_breaks_no_law() -> None:
    assert broken(sound()) == set()


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (lose, "lost"),
        (lose_what_was_seen_only, "lost"),
        (double, "doubled"),
        (rank, "changed"),
        (give_again, "given again after its commit"),
        (overfill, "windows"),
        (disorder, "quiet"),
        (repeat, "quiet"),
        (refuse, "conflicts"),
        (find, "findings"),
    ],
)
def test_a_law_is_broken_by_what_it_is_about(spoil: Callable[[Evidence], None], law: str) -> None:
    found = sound()
    spoil(found)
    assert law in broken(found)


@pytest.mark.parametrize(
    ("fault", "is_excused"),
    [
        (Fault("kill nats", 4.0, 4.5), True),
        (Fault("kill nats", 20.0, 20.5), False),
        (Fault("kill gateway", 4.0, 4.5), False),
        (Fault("freeze gateway for long", 2.0, 27.0), True),
        (Fault("freeze gateway", 2.0, 6.0), False),
    ],
)
def test_a_commit_is_forgotten_only_where_nats_was_killed_or_something_stood_still_for_long(
    fault: Fault, is_excused: bool
) -> None:
    found = sound()
    give_again(found)
    found.faults.append(fault)
    assert ("given again after its commit" in broken(found)) != is_excused


def test_what_somebody_else_commits_or_asks_to_is_in_nobody_s_window() -> None:
    found = sound()
    found.receipts = [receipt(1.0, 1, window=1), receipt(2.0, 2, window=1), receipt(2.5, 1, window=1)]
    found.commits = [commit(1.5, 1)]
    assert "windows" not in broken(found)


def test_a_frame_is_read_as_the_product_s_sdk_reads_it() -> None:
    assert frame(b"\x08\xac\x02\x12\x06\x0a\x01n\x12\x017\x1a\x03abc") == (300, {"n": "7"})
