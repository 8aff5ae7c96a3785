"""One worker of the scope: its production machines, its processes, and what is on its way to it.

Nodes are copied before they are changed, so that states share what they have in common.
"""

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, NamedTuple

from signalbox.wire.messages import Record
from workers.guard.machine import GuardMachine
from workers.lease import effects, events
from workers.lease.machine import Claimant, HeldLease, LeaseMachine
from workers.lease.rules import Rules
from workers.lease.tickets import OwnTicket, WaitQueue

GPU: Final = "GPU-1"
RULES: Final = Rules(
    heartbeat_s=1,
    request_timeout_s=1,
    fence_s=2,
    kill_s=1,
    margin_s=0,
    failover_s=0,
    ttl_s=3,
    reserved_s=1,
    quantum_s=1,
    idle_s=0.2,
    recheck_s=1,
    lock_wait_s=1,
    quarantine_s=1,
)
"""In ticks, as small as safety allows: a record outlives its holder's runner by as much as a kill may take.
That four heartbeats fit into a fence is for comfort and left out."""
LONG_S: Final = 1 << 30
"""Tickets of the living need no renewal here: the expiry of a dead one's is a step of its own."""


class Op(NamedTuple):
    """A lease write under way. fate: ``sent`` until the server has it; ``slow`` if its answer tarries;
    ``lost`` if its writer will receive nothing but its own time-out."""

    write: effects.WriteRecord
    at: int
    fate: str = "sent"
    answer: events.Written | events.WriteRefused | None = None


class InHand(NamedTuple):
    """A job in a worker's hands. phase: claim, running, commit or requeue. record, revision: what the
    worker believes is stored; made: what it tries to write."""

    job: int
    phase: str
    token: int
    record: Record | None = None
    revision: int = 0
    made: Record | None = None


@dataclass(slots=True)
class Node:
    """A worker. runner: none, out, in, leaving, dying; uses: whether it is in the device.

    stored_at: when the last of its lease writes that the server stored was sent.
    """

    name: str
    life: int
    host: str
    lease: LeaseMachine
    ticket: OwnTicket
    guard: GuardMachine
    runner: str = "out"
    is_user: bool = False
    is_stuck: bool = False
    is_guard_dead: bool = False
    op: Op | None = None
    is_slow_reader: bool = False
    reading: events.Observed | None = None
    is_frozen: bool = False
    is_cut: bool = False
    is_deaf: bool = False
    is_down: bool = False
    inbox: tuple[events.Event, ...] = ()
    words: tuple[events.Event, ...] = ()
    is_held: bool = False
    is_yielding: bool = False
    hand: InHand | None = None
    stored_at: int = -1000

    def copied(self) -> "Node":
        """The same, with machines of its own."""
        twin = Node(*_all_of(self))
        twin.lease = copied_lease(self.lease)
        twin.ticket = OwnTicket.__new__(OwnTicket)
        twin.ticket.__dict__.update(self.ticket.__dict__)
        twin.guard = copied_guard(self.guard)
        return twin


_all_of: Final = attrgetter(*(one.name for one in fields(Node)))
_all_of_guard: Final = attrgetter(*GuardMachine.__slots__)


def copied_lease(lease: LeaseMachine) -> LeaseMachine:
    """The same state in another object; records are immutable and shared."""
    twin = type(lease).__new__(type(lease))
    twin.__dict__.update(lease.__dict__)
    twin.waiters = WaitQueue()
    twin.waiters._numbers.update(lease.waiters._numbers)
    twin.waiters._seen_at.update(lease.waiters._seen_at)
    held = lease.held
    if held is not None:
        twin.held = HeldLease(
            held.token,
            held.revision,
            held.since,
            held.acked_at,
            held.next_beat_at,
            held.beats,
            held.is_token_written,
            dict(held.unsure),
            held.is_resolving,
            held.is_releasing,
            held.is_yield_asked,
            held.is_at_risk,
        )
    return twin


def copied_guard(guard: GuardMachine) -> GuardMachine:
    """The same state in another object."""
    twin = type(guard).__new__(type(guard))
    for name, value in zip(GuardMachine.__slots__, _all_of_guard(guard), strict=True):
        setattr(twin, name, value)
    return twin


@dataclass(frozen=True)
class Machines:
    """The machines to explore; a test may pass broken ones. is_kept: whether a runner outlives a
    hand-over. hosts: of each worker; workers of one host share a flock."""

    lease: type[LeaseMachine] = LeaseMachine
    guard: type[GuardMachine] = GuardMachine
    is_kept: bool = False
    hosts: tuple[str, ...] = field(default=("h", "h", "h"))


def born(machines: Machines, name: str, life: int, host: str) -> Node:
    """A supervisor that has just started, with a guard and a runner outside the device."""
    me = Claimant(name, f"{name}.{life}", host)
    lease = machines.lease(GPU, me, RULES, WaitQueue())
    ticket = OwnTicket(GPU, name, me.boot, ttl_s=LONG_S, epoch=0.0)
    return Node(name, life, host, lease, ticket, new_guard(machines))


def new_guard(machines: Machines) -> GuardMachine:
    """A guard with a runner outside the device."""
    guard = machines.guard(machines.is_kept)
    guard.on("spawned", 1, now_ns=0)
    return guard
