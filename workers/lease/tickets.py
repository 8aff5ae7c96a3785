"""The wait queue of one GPU, and this worker's own ticket. Pure: time is passed in.

A ticket is a KV record with a TTL; its number is the stream sequence of its first write, so numbers
only grow and no program assigns them. The promise is V2 of docs/guarantees.md.
"""

from typing import Final, NamedTuple

from signalbox.wire.workerdocs import Ticket

_RETRY_S: Final = 0.5


class WaitQueue:
    """The wait queue of one GPU: the live tickets of its waiters, in the order of their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._seen_at: dict[str, float] = {}

    def put(self, worker: str, number: int, at: float = 0.0) -> None:
        """Note that ``worker`` waits with ``number``, received ``at``; a renewal keeps the number."""
        self._numbers[worker] = number
        self._seen_at[worker] = at

    def forget(self, before: float) -> None:
        """Drop the workers that were silent since ``before``: the event of their end was lost."""
        for worker in [worker for worker, at in self._seen_at.items() if at < before]:
            self.drop(worker)

    def drop(self, worker: str) -> None:
        """Note that ``worker`` no longer waits."""
        self._numbers.pop(worker, None)
        self._seen_at.pop(worker, None)

    def clear(self) -> None:
        """Drop all waiters, before they are read anew."""
        self._numbers.clear()
        self._seen_at.clear()

    def head(self, *, but: str) -> str:
        """The first waiter other than ``but``; empty where no other waits."""
        return min((n, w) for w, n in self._numbers.items() if w != but)[1] if self.others(but) else ""

    def others(self, me: str) -> int:
        """How many others wait."""
        return len(self._numbers) - (me in self._numbers)

    def ahead(self, me: str, *, but: str = "") -> int:
        """How many wait before ``me`` (all, if ``me`` has no ticket), without ``but``."""
        own = self._numbers.get(me)
        return sum(
            1 for worker, number in self._numbers.items() if worker not in {me, but} and (own is None or number < own)
        )


class PutTicket(NamedTuple):
    """Write ``ticket`` with a TTL of ``ttl_s``, expecting revision ``expect``."""

    ticket: Ticket
    expect: int
    ttl_s: int


class DropTicket(NamedTuple):
    """Delete the ticket, expecting revision ``expect``."""

    expect: int


class OwnTicket:
    """Takes, renews and gives up one ticket. At most one write is in flight.

    ``due`` says what to write now; tell it the outcome by ``written``, ``refused`` or ``failed``.
    """

    def __init__(self, gpu: str, worker: str, boot: str, *, ttl_s: int, epoch: float) -> None:
        """``epoch``: unix time minus ``now``, for the record's ``since`` that people read."""
        self._gpu, self._worker, self._boot = gpu, worker, boot
        self._ttl_s, self._epoch = ttl_s, epoch
        self._is_wanted = self._is_there = self._is_busy = self._is_drop = False
        self._revision = self._number = 0
        self._since = self._next_at = self._sent_at = self._lives_until = 0.0

    @property
    def number(self) -> int:
        """The ticket's number; 0 without a ticket."""
        return self._number

    @property
    def waiting_since(self) -> float | None:
        """When this worker began to wait, in unix seconds; ``None`` without a ticket."""
        return self._since + self._epoch if self._number else None

    def want(self, is_wanted: bool, now: float) -> None:
        """Say whether a ticket is wanted from now on."""
        if is_wanted != self._is_wanted:
            self._is_wanted, self._next_at = is_wanted, now

    def due(self, now: float) -> PutTicket | DropTicket | None:
        """The write to make now, if any."""
        if self._is_busy or now < self._next_at:
            return None
        if self._is_wanted:
            if not self._number:
                self._since = now
            self._is_busy, self._is_drop, self._sent_at = True, False, now
            ticket = Ticket(
                gpu=self._gpu,
                worker=self._worker,
                boot=self._boot,
                number=self._number,
                since=self._since + self._epoch,
            )
            return PutTicket(ticket, self._revision, self._ttl_s)
        if self._is_there:
            self._is_busy = self._is_drop = True
            return DropTicket(self._revision)
        return None

    def next_at(self) -> float | None:
        """When to ask ``due`` again at the latest."""
        needs = (self._is_wanted or self._is_there) and not self._is_busy
        return self._next_at if needs else None

    def written(self, sequence: int, now: float) -> None:
        """The write was stored as ``sequence``."""
        self._is_busy = False
        self._revision = sequence
        if self._is_drop:
            self._is_there, self._number = False, 0
        else:
            self._is_there = True
            self._number = self._number or sequence
            self._lives_until = self._sent_at + self._ttl_s
            self._next_at = now + self._ttl_s / 3 if self._is_wanted else now

    def refused(self, last: int | None, now: float) -> None:
        """The write was refused, as the revision is another.

        The ticket expired, an earlier process left one, or a write was stored whose answer was lost. As long as the
        ticket cannot have expired, only the last is possible, and the number is kept.
        """
        self._is_busy = False
        if last is None:  # another write is in flight and may come to nothing
            self._next_at = now + _RETRY_S
            return
        if not last or now >= self._lives_until:
            self._number, self._is_there = 0, False
        self._revision, self._next_at = last, now

    def failed(self, now: float) -> None:
        """The write was not stored, or is ambiguous: the same write is made again in a moment."""
        self._is_busy = False
        if self._is_drop:
            self._lives_until = now
        self._next_at = now + _RETRY_S
