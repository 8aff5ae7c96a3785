"""The identity of a state: two worlds with the same key behave alike for ever.

Times count from now and are cut off where no constant reaches; revisions and tokens keep their order
and whether they are neighbours; workers and jobs are put into an order of their own, so that states
that differ only in who is who are one.
"""

import marshal
import math
from collections.abc import Sequence
from hashlib import blake2b
from itertools import permutations
from typing import Any, Final

from signalbox.wire import messages, workerdocs
from verification.scope.nodes import RULES, Node, Op
from verification.scope.world import NS, World
from workers.guard.machine import GuardMachine
from workers.lease import events
from workers.lease.machine import HELD, Flock, HeldLease, LeaseMachine

PAST: Final = RULES.ttl_s + 1
"""Ticks after which the past is only past: nothing counts longer than a record lives."""
FUTURE: Final = RULES.ttl_s + 1
_A_STAY: Final = max(RULES.quantum_s, RULES.lock_wait_s)
_LEASE_FIELDS: Final = frozenset(
    {
        "gpu",
        "me",
        "rules",
        "waiters",
        "held",
        "flock",
        "place",
        "wake_at",
        "_epoch",
        "_jitter",
        "_seen",
        "_seen_at",
        "_verified_at",
        "_floor",
        "_locked_at",
        "_holder",
        "_taken_at",
        "_op",
        "_sent_at",
        "_sent",
        "_is_reading",
        "_is_runner_ready",
        "_is_wanted",
        "_is_allowed",
        "_idle_since",
        "_stand_back_until",
        "_retry_at",
        "_recheck_at",
        "_lapse_at",
        "_is_yield_ordered",
        "_out",
    }
)


_GUARD_FIELDS: Final = {
    "_asked",
    "_out",
    "deadline_ns",
    "ending",
    "floor",
    "hold_ns",
    "is_kept",
    "is_locked",
    "is_waiting",
    "runner",
    "token",
    "verb",
}


assert set(GuardMachine.__slots__) == _GUARD_FIELDS, "the guard has a field that the key does not know"


def digest(world: World) -> bytes:
    """16 bytes; that two different states share them is beyond belief."""
    return blake2b(key(world), digest_size=16).digest()


def key(world: World) -> bytes:
    """Nested tuples of numbers and words, as bytes. Workers that look alike are tried in every order."""
    views = {name: _views(node) for name, node in world.nodes.items()}
    nodes = sorted(world.nodes.values(), key=lambda node: views[node.name])
    if len(set(views.values())) == len(nodes):
        return marshal.dumps(_View(world, nodes).key(), 2)
    return min(
        marshal.dumps(_View(world, order).key(), 2)
        for order in permutations(nodes)
        if [views[node.name] for node in order] == [views[node.name] for node in nodes]
    )


class _View:
    """One world, with its names and numbers in canonical terms."""

    def __init__(self, world: World, nodes: Sequence[Node]) -> None:
        self.world, self.now = world, world.now
        self.nodes = nodes
        self.place = {node.name: place for place, node in enumerate(self.nodes)} | {"": -1}
        self.boots = {node.lease.me.boot: (place, 0) for place, node in enumerate(self.nodes)}
        self.boots[""] = (-1, 0)
        self.turn = (len(self.nodes) - 1) * RULES.reserved_s  # a waiter waits behind at most all others
        # Only a stream made anew can be behind the tokens; it may be lost at any time, so distances matter.
        self.rank = _ranks(self.numbers(), longest=2)
        self.tickets = _ranks(
            {0}
            | {number for node in self.nodes for number in (*node.lease.waiters._numbers.values(), node.ticket._number)}
            | {number for number, _, _ in world.tickets.values()}
        )
        self.attempts = [self.attempts_at(number) for number in range(len(world.jobs))]

    # -- numbers ---------------------------------------------------------------------------------------

    def numbers(self) -> set[int]:
        """Every revision and token there is."""
        world = self.world
        found = {0, world.revision, world.highest, world.used[1], *world.floors.values()}
        records = [world.record]
        for node in self.nodes:
            found |= _numbers_of(node)
            records += _records_of(node)
            if node.op is not None and node.op.fate == "sent":
                found.add(node.op.write.expect or 0)
        for late in world.late:
            if late.lease is not None:
                if world.is_wiped:
                    found.add(late.expect or 0)
                records.append(late.lease.record)
        hands = [node.hand for node in self.nodes if node.hand is not None]
        made = [hand.made for hand in hands] + [hand.record for hand in hands]
        made += [late.record for late in world.late] + [job.record for job in world.jobs]
        found |= {one.token for one in made if one is not None}
        return found | {max(one.token, one.last_token) for one in records if one is not None}

    def attempts_at(self, number: int) -> dict[int, int]:
        """Those at a job that are still known: whether they are the same, and whether one follows another."""
        world = self.world
        hands = [node.hand for node in self.nodes if node.hand is not None]
        records = [hand.record for hand in hands if hand.job == number]
        records += [hand.made for hand in hands if hand.job == number]
        records += [late.record for late in world.late if late.job == number]
        stored = world.jobs[number].record
        found = {record.attempt for record in records if record is not None}
        found.add(stored.attempt if stored is not None else 0)
        before = min(found) - 1
        ranks = _ranks({one - before for one in found}, longest=2)
        return {one: ranks[one - before] for one in found}

    # -- terms -----------------------------------------------------------------------------------------

    def at(self, when: float | None) -> float:
        """A time, from now."""
        if when is None:
            return FUTURE + 2
        ago = when - self.now
        return -PAST if ago < -PAST else FUTURE + 1 if ago > FUTURE else ago

    def since(self, when: float, longest: float) -> float:
        """A time in the past that matters for ``longest`` ticks."""
        return max(when - self.now, -longest)

    def due(self, when: float) -> float:
        """A time that only matters while it is in the future; between ticks no process reads it."""
        ahead = when - self.now
        return 0 if ahead <= 0 else FUTURE if ahead >= FUTURE else math.ceil(ahead)

    def boot(self, boot: str) -> tuple[int, int]:
        """Whose, and which of its lives: 0 is the present one. Of others it only matters whether they are the same."""
        found = self.boots.get(boot)
        if found is None:
            name = boot.partition(".")[0]
            found = self.boots[boot] = (self.place[name], len(self.boots))
        return found

    def used(self) -> tuple[int, int]:
        """The last stay, while its worker may come again under the same token."""
        boot, token = self.world.used
        place, life = self.boot(boot)
        return (-1, 0) if life else (place, self.rank[token])

    def lease_record(self, record: workerdocs.Lease | None) -> Any:
        if record is None:
            return None
        node = self.world.nodes.get(record.owner)
        held = node.lease.held if node is not None and node.lease.me.boot == record.boot else None
        return (
            record.state,
            self.boot(record.boot),
            record.host,
            self.place[record.next],
            self.rank[max(record.token, record.last_token)],
            min(held.beats - record.beats, PAST) if held is not None else 0,
        )

    def expected(self, revision: int | None) -> int:
        """Of a compare-and-set that waits for its time: whether it would succeed. A revision does not come back,
        but in a stream made anew, which such a write does not outlive unless it was made for it."""
        if revision is None:
            return -2
        return self.rank[revision] if self.world.is_wiped else int(revision == self.world.revision)

    def sent(self, op: Op) -> int | None:
        """What a write under way expects: a new stream may come before it arrives."""
        if op.fate != "sent":
            return -1
        expect: int | None = op.write.expect  # a broken machine may expect nothing
        return None if expect is None else self.rank[expect]

    def event(self, event: events.Event | None) -> Any:
        match event:
            case events.Observed(record, revision, is_leader):
                return ("o", self.lease_record(record), self.rank[revision], is_leader)
            case events.Written(revision):
                return ("w", self.rank[revision])
            case events.Locked(floor):
                return ("l", self.rank[floor])
            case events.Entered(token):
                return ("e", self.rank[token])
            case None:
                return None
            case _:
                return repr(event)

    # -- parts -----------------------------------------------------------------------------------------

    def key(self) -> tuple[Any, ...]:
        world = self.world
        return (
            self.lease_record(world.record),
            self.rank[world.revision],
            self.at(world.expires_at) if world.expires_at else 99,
            world.is_overdue,
            world.is_wiped,
            self.rank[world.highest],
            self.used(),
            tuple(sorted((host, self.place.get(name, -2)) for host, name in world.flocks.items())),
            tuple(sorted((host, self.rank[floor]) for host, floor in world.floors.items())),
            tuple(
                sorted(
                    (self.place[name], self.tickets[number], self.boot(boot))
                    for name, (number, _, boot) in world.tickets.items()
                )
            ),
            tuple(sorted(map(tuple, world.old))),
            tuple(sorted(repr(self.late(late)) for late in world.late)),
            tuple(self.job(number) for number in range(len(world.jobs))),
            tuple(self.node(node) for node in self.nodes),
        )

    def late(self, late: Any) -> Any:
        if late.lease is not None:
            write = late.lease
            return (
                self.boot(late.boot),
                self.at(late.at),
                self.expected(late.expect),
                self.lease_record(write.record),
                write.ttl_s,
            )
        behind = self.world.jobs[late.job].revision - late.expect
        return (late.job, behind, self.job_record(late.job, late.record))

    def job(self, number: int) -> tuple[Any, ...]:
        job = self.world.jobs[number]
        if job.is_over:
            return ("over",)
        return (self.owner(job.owner), job.is_again, self.job_record(number, job.record))

    def owner(self, boot: str) -> int:
        """The workers to which a job is delivered; one that has died since equals no living worker."""
        place, life = self.boot(boot)
        return place if not life else -2

    def job_record(self, number: int, record: messages.Record | None) -> Any:
        """Its token says whose it is: no two stays share one (S2)."""
        if record is None:
            return None
        return (record.state._value_, self.attempts[number][record.attempt], self.rank[record.token])

    def node(self, node: Node) -> tuple[Any, ...]:
        guard, op, hand = node.guard, node.op, node.hand
        return (
            node.host,
            node.runner,
            node.is_user,
            node.is_stuck,
            node.is_guard_dead,
            node.is_slow_reader,
            self.event(node.reading),
            node.is_frozen,
            node.is_cut,
            node.is_deaf,
            node.is_down,
            node.is_held,
            node.is_yielding,
            self.at(node.stored_at) if node.is_user or node.lease.held else 0,
            guard.is_locked,
            guard.is_waiting,
            guard.hold_ns,
            guard.runner,
            self.rank[guard.token],
            self.rank[guard.floor] if guard.is_locked else -1,
            self.at(guard.deadline_ns / NS) if guard.deadline_ns else 99,
            guard.ending,
            None
            if op is None
            else (
                self.lease_record(op.write.record),
                self.sent(op),
                op.write.ttl_s,
                self.at(op.at),
                op.fate,
                self.event(op.answer),
            ),
            None
            if hand is None
            else (
                hand.job,
                hand.phase,
                self.rank[hand.token],
                self.job_record(hand.job, hand.record),
                self.world.jobs[hand.job].revision - hand.revision,
                self.job_record(hand.job, hand.made),
            ),
            tuple(map(self.event, node.inbox)),
            tuple(map(self.event, node.words)),
            self.ticket(node),
            self.lease(node.lease),
        )

    def ticket(self, node: Node) -> tuple[Any, ...]:
        ticket, kept = node.ticket, self.world.tickets.get(node.name, (0, 0, ""))
        return (
            ticket._is_wanted,
            ticket._is_there,
            self.tickets[ticket._number],
            ticket._is_there and ticket._revision != kept[1],
            self.due(ticket._next_at),
            tuple(
                sorted((self.place[name], self.tickets[number]) for name, number in node.lease.waiters._numbers.items())
            ),
        )

    def lease(self, lease: LeaseMachine) -> tuple[Any, ...]:
        at, due, since = self.at, self.due, self.since
        assert lease.__dict__.keys() == _LEASE_FIELDS, "the lease has a field that the key does not know"
        seen, is_locked = lease._seen, lease.flock is Flock.HELD
        is_other_held = seen is not None and seen.record is not None and seen.record.state == HELD
        return (
            self.held(lease.held),
            lease.flock._value_,
            lease.place._value_,
            due(lease.wake_at),
            None if seen is None else (self.lease_record(seen.record), self.rank[seen.revision]),
            0 if is_other_held else since(lease._seen_at, self.turn),
            lease._verified_at >= lease._locked_at if is_locked else None,
            self.rank[lease._floor] if is_locked else None,
            self.boot(lease._holder),
            # When the flock proves the holder dead; without it only a holder of this tick matters.
            0
            if lease._holder in {"", lease.me.boot}
            else since(max(lease._locked_at, lease._taken_at + 1), self.turn)
            if is_locked
            else since(lease._taken_at, 1),
            lease._op._value_ if lease._op else "",
            (at(lease._sent_at), self.lease_record(lease._sent)) if lease._op else None,
            lease._is_reading,
            lease._is_runner_ready,
            lease._is_wanted,
            lease._is_allowed,
            None if lease._idle_since is None else since(lease._idle_since, 1),
            due(lease._stand_back_until),
            due(lease._retry_at),
            due(lease._recheck_at),
            due(lease._lapse_at),
            lease._is_yield_ordered,
        )

    def held(self, held: HeldLease | None) -> Any:
        if held is None:
            return None
        return (
            self.rank[held.token],
            self.rank[held.revision],
            self.since(held.since, _A_STAY),
            self.at(held.acked_at),
            self.due(held.next_beat_at),
            held.is_token_written,
            tuple(sorted((held.beats - beat, self.at(at)) for beat, at in held.unsure.items())),
            held.is_resolving,
            held.is_releasing,
            held.is_yield_asked,
            held.is_at_risk,
        )


def _numbers_of(node: Node) -> set[int]:
    """Revisions and tokens that a worker knows outside of records."""
    lease, guard = node.lease, node.guard
    found = {guard.token}
    if guard.is_locked:
        found.add(guard.floor)
    if lease.flock is Flock.HELD:
        found.add(lease._floor)
    if lease.held is not None:
        found |= {lease.held.token, lease.held.revision}
    if node.hand is not None:
        found.add(node.hand.token)
    answer = node.op.answer if node.op is not None else None
    for event in (lease._seen, node.reading, answer, *node.inbox):
        if isinstance(event, events.Observed | events.Written):
            found.add(event.revision)
    found |= {event.token for event in node.words if isinstance(event, events.Entered)}
    return found | {event.floor for event in node.words if isinstance(event, events.Locked)}


def _records_of(node: Node) -> list[workerdocs.Lease | None]:
    """Those of the lease that a worker has seen or is writing."""
    records = [node.op.write.record] if node.op is not None else []
    if node.lease._op is not None:
        records.append(node.lease._sent)
    seen = (node.lease._seen, node.reading, *node.inbox)
    return [*records, *(event.record for event in seen if isinstance(event, events.Observed))]


def _views(node: Node) -> tuple[Any, ...]:
    """An order of workers that does not depend on their names."""
    lease = node.lease
    return (
        node.host,
        lease.held is not None,
        lease.flock.value,
        lease.place.value,
        node.runner,
        node.is_frozen,
        node.is_cut,
        node.is_down,
        node.ticket._number,
        node.is_user,
        node.hand is not None,
        node.op is not None,
        len(node.inbox),
        len(node.words),
        lease.wake_at,
    )


def _ranks(numbers: set[int], longest: int = 1) -> dict[int, int]:
    """Order kept, and distances up to ``longest``; 0 stays 0."""
    ranks: dict[int, int] = {}
    before, rank = 0, 0
    for number in sorted(numbers):
        rank += min(number - before, longest)
        ranks[number] = rank
        before = number
    return ranks
