"""What producers and consumers saw, and which faults there were; seconds are of one monotonic clock."""

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from signalbox.wire.queuenames import Rank

LONG_S: Final = 15.0
"""A fault of this length, or longer, is one after which items have been given to others meanwhile."""


class Receipt(msgspec.Struct, frozen=True):
    """An item that came over a websocket. link: of that, which the consumer began to open at link_at."""

    at: float
    queue: str
    group: str
    uid: str
    link: int
    link_at: float
    index: int
    number: int
    rank: Rank
    window: int


class Commit(NamedTuple):
    """Items whose commit was answered well, and when it was first asked for."""

    asked_at: float
    at: float
    queue: str
    group: str
    indexes: tuple[int, ...]


class Fault(NamedTuple):
    """What was done to the site, from its beginning until it was undone."""

    kind: str
    began: float
    ended: float


class Evidence:
    """Of one run. put: index by queue and number, of puts that were answered. perhaps: numbers whose put had an answer
    after which it may be stored all the same. conflicts: when a commit was answered with 409."""

    def __init__(self) -> None:
        self.put: dict[tuple[str, int], int] = {}
        self.perhaps: set[tuple[str, int]] = set()
        self.ranks: dict[tuple[str, int], Rank] = {}
        self.receipts: list[Receipt] = []
        self.commits: list[Commit] = []
        self.faults: list[Fault] = []
        self.conflicts: list[float] = []
        self.answers: Counter[tuple[str, int]] = Counter()
        self.closes: Counter[str] = Counter()
        self.quiet_until = 0.0
        self.findings: list[str] = []
