"""A model of everything around a lease: NATS with compare-and-set and TTL, the kernel's flock, guards.

Time stands still until a test moves it. What the model allows, reality may do: writes that are
applied after their time-out, events that never arrive, processes frozen or killed anywhere.
"""

from collections import deque
from dataclasses import dataclass, field

from signalbox.wire import messages
from workers.lease import effects, events
from workers.lease.machine import HELD, Claimant, LeaseMachine
from workers.lease.rules import Rules
from workers.lease.tickets import WaitQueue

RULES = Rules()
GPU = "GPU-1"
HOST = "host/boot"


@dataclass
class Orphan:
    """A write whose writer was told that it timed out."""

    write: effects.WriteRecord
    node: "Node"
    at: float


@dataclass
class Guard:
    """What one guard knows, and whether its runner lives and is inside."""

    is_locked: bool = False
    is_waiting: bool = False
    is_alive: bool = True
    is_inside: bool = False
    token: int = 0
    deadline: float = 0.0


@dataclass
class Node:
    """One worker: its machine, its guard, what is on its way to it and from it."""

    name: str
    lease: LeaseMachine
    guard: Guard = field(default_factory=Guard)
    inbox: deque[events.Event] = field(default_factory=deque)
    op: effects.WriteRecord | None = None
    op_at: float = 0.0
    stored_at: float = -1000.0
    is_reading: bool = False
    is_frozen: bool = False
    is_held: bool = False
    life: int = 0


class World:
    """``size`` workers of one host and one GPU."""

    def __init__(self, size: int) -> None:
        self.now = 100.0
        self.sequence = 0
        self.record: messages.Lease | None = None
        self.revision = 0
        self.expires_at = 0.0
        self.floor = 0
        self.waiters = WaitQueue()
        self.orphans: list[Orphan] = []
        self.history: list[tuple[float, str, str]] = []
        self.entries: list[tuple[str, int, int]] = []
        self.nodes = [self.born(f"w{number}", 0) for number in range(size)]

    def born(self, name: str, life: int) -> Node:
        me = Claimant(name, f"{name}-{life}", HOST)
        node = Node(name, LeaseMachine(GPU, me, RULES, self.waiters), life=life)
        node.inbox.append(events.Tick())
        node.inbox.append(events.RunnerReady())
        return node

    # -- the worker's side

    def feed(self, node: Node, event: events.Event) -> None:
        for effect in node.lease.on(event, self.now):
            self.act(node, effect)
        if node.lease.held is None:
            assert not node.guard.is_inside, "the lease is lost and the runner is inside"
        if node.lease.needs_ticket:
            if not self.waiters.ahead(node.name, but="") and self.waiters.head(but="") == node.name:
                return
            if node.name not in self.waiting():
                self.sequence += 1
                self.waiters.put(node.name, self.sequence)
        elif node.name in self.waiting():
            self.waiters.drop(node.name)

    def waiting(self) -> set[str]:
        return set(self.waiters._numbers)

    def act(self, node: Node, effect: effects.Effect) -> None:
        guard = node.guard
        match effect:
            case effects.WriteRecord():
                assert node.op is None, "two writes in flight"
                node.op, node.op_at = effect, self.now
            case effects.ReadLeader():
                node.is_reading = True
            case effects.Lock():
                guard.is_waiting = not guard.is_locked
                self.grant()
            case effects.Unlock():
                assert not guard.is_inside, "unlocked with a runner inside"
                self.free(node)
                node.inbox.append(events.Unlocked())
            case effects.Enter(token, deadline):
                self.enter(node, token, deadline)
            case effects.Deadline(at):
                assert at <= node.stored_at + RULES.fence_s, "a deadline that no write stands for"
                if guard.token:
                    guard.deadline = at
            case effects.Leave():
                self.free(node)
                node.inbox.append(events.Unlocked())
            case effects.Fence():
                self.fence(node)
            case effects.Gained():
                node.is_held = True
            case effects.Ended():
                node.is_held = False

    # -- the kernel and the guards

    def grant(self) -> None:
        """A free flock goes to whoever waits."""
        if any(node.guard.is_locked for node in self.nodes):
            return
        for node in self.nodes:
            if node.guard.is_waiting:
                node.guard.is_waiting, node.guard.is_locked = False, True
                node.inbox.append(events.Locked(self.floor))
                return

    def free(self, node: Node) -> None:
        guard = node.guard
        guard.is_inside = guard.is_locked = guard.is_waiting = False
        guard.token = 0
        guard.deadline = 0.0
        self.grant()

    def fence(self, node: Node) -> None:
        """The guard kills the runner and gives the flock back."""
        if node.guard.token:
            node.guard.is_alive = False
            node.inbox.append(events.RunnerDied())
        self.free(node)
        node.inbox.append(events.Unlocked(is_fenced=True))

    def enter(self, node: Node, token: int, deadline: float) -> None:
        guard = node.guard
        if not guard.is_locked or not guard.is_alive:
            return
        others = [n.name for n in self.nodes if n.guard.is_inside and n is not node]
        assert not others, f"{node.name} entered while {others} was inside"
        assert deadline <= node.stored_at + RULES.fence_s, "a deadline that no write stands for"
        if token != guard.token:
            assert token > self.floor, f"token {token} after {self.floor}"
        self.floor = guard.token = token
        guard.is_inside, guard.deadline = True, deadline
        self.entries.append((node.name, node.life, token))
        node.inbox.append(events.Entered(token))

    # -- NATS

    def expire(self) -> None:
        if self.record is not None and self.expires_at and self.now >= self.expires_at:
            self.put(None, 0)

    def put(self, record: messages.Lease | None, ttl_s: int) -> None:
        self.sequence += 1
        self.record, self.revision = record, self.sequence
        self.expires_at = self.now + ttl_s if ttl_s else 0.0
        self.history.append((self.now, record.state if record else "", record.owner if record else ""))
        for node in self.nodes:
            node.inbox.append(events.Observed(record, self.revision))

    def apply(self, write: effects.WriteRecord) -> events.Event:
        self.expire()
        if write.expect != self.revision:
            return events.WriteRefused()
        self.put(write.record, write.ttl_s or 0)
        return events.Written(self.revision)

    # -- what may happen

    def deliver(self, node: Node) -> None:
        if node.inbox and not node.is_frozen:
            self.feed(node, node.inbox.popleft())

    def lose(self, node: Node) -> None:
        """An event about the record is lost on its way. The answer to a read is not: a read ends, if by a timeout."""
        first = node.inbox[0] if node.inbox else None
        if isinstance(first, events.Observed) and not first.is_leader:
            node.inbox.popleft()

    def store(self, node: Node) -> None:
        """The write arrives; so does its acknowledgement, in its turn."""
        if node.op is not None:
            write, node.op = node.op, None
            answer = self.apply(write)
            if isinstance(answer, events.Written):
                node.stored_at = node.op_at
            node.inbox.append(answer)

    def store_unheard(self, node: Node) -> None:
        """The write arrives, its acknowledgement does not."""
        if node.op is not None:
            write, node.op = node.op, None
            if isinstance(self.apply(write), events.Written):
                node.stored_at = node.op_at
            node.inbox.append(events.WriteFailed(is_unsure=True))

    def time_out(self, node: Node) -> None:
        """The write does not arrive in time; perhaps later."""
        if node.op is not None:
            self.orphans.append(Orphan(node.op, node, node.op_at))
            node.op = None
            node.inbox.append(events.WriteFailed(is_unsure=True))

    def refuse(self, node: Node) -> None:
        """NATS is away: certainly not stored."""
        if node.op is not None:
            node.op = None
            node.inbox.append(events.WriteFailed(is_unsure=False))

    def late(self, node: Node) -> None:
        """A write that timed out is applied after all."""
        if self.orphans:
            orphan = self.orphans.pop(0)
            if isinstance(self.apply(orphan.write), events.Written):
                orphan.node.stored_at = max(orphan.node.stored_at, orphan.at)

    def read(self, node: Node) -> None:
        if node.is_reading:
            self.expire()
            node.is_reading = False
            node.inbox.append(events.Observed(self.record, self.revision, is_leader=True))

    def read_fails(self, node: Node) -> None:
        if node.is_reading:
            node.is_reading = False
            node.inbox.append(events.ReadFailed())

    def wipe(self, node: Node) -> None:
        """The stream is lost and made anew: revisions count from 1 again."""
        self.sequence = self.revision = 0
        self.record, self.expires_at = None, 0.0
        self.orphans.clear()

    def freeze(self, node: Node) -> None:
        node.is_frozen = True

    def thaw(self, node: Node) -> None:
        node.is_frozen = False

    def crash(self, node: Node) -> None:
        """SIGKILL of the supervisor; another starts in its place."""
        index = self.nodes.index(node)
        self.waiters.drop(node.name)
        if node.op is not None:
            self.orphans.append(Orphan(node.op, node, node.op_at))
        node.guard.is_locked = node.guard.is_inside = node.guard.is_waiting = False
        self.nodes[index] = self.born(node.name, node.life + 1)
        self.grant()

    def runner_crash(self, node: Node) -> None:
        if node.guard.is_alive:
            node.guard.is_alive = node.guard.is_inside = False
            node.inbox.append(events.RunnerDied())

    def runner_start(self, node: Node) -> None:
        """The worker starts a runner, as soon as it has heard that the last one died."""
        if not (node.guard.is_alive or node.is_frozen or events.RunnerDied() in node.inbox):
            node.guard.is_alive = True
            node.inbox.append(events.RunnerReady())

    def want(self, node: Node) -> None:
        if not node.is_frozen:
            self.feed(node, events.Intent(is_wanted=True))

    def release(self, node: Node) -> None:
        if not node.is_frozen:
            self.feed(node, events.ReleaseAsked())

    def tick(self, node: Node) -> None:
        self.advance(0.3)

    def settle(self, node: Node) -> None:
        """What is under way arrives, everywhere; the frozen stay frozen."""
        for _ in range(8):
            for each in self.nodes:
                self.store(each)
                self.read(each)
                self.deliver(each)

    def jump(self, node: Node) -> None:
        self.advance(4.0)

    def advance(self, seconds: float) -> None:
        """Time passes: guards fence, records expire, writes time out, timers fire."""
        self.now += seconds
        self.expire()
        for node in self.nodes:
            guard = node.guard
            if guard.token and guard.deadline and self.now >= guard.deadline:
                self.fence(node)
            if node.op is not None and self.now - node.op_at > RULES.request_timeout_s:
                self.time_out(node)
        for node in self.nodes:
            if not node.is_frozen and node.lease.wake_at <= self.now:
                self.feed(node, events.Tick())

    def inside(self) -> list[Node]:
        return [node for node in self.nodes if node.guard.is_inside]

    def heal(self, seconds: float) -> None:
        """Everything works again for ``seconds``."""
        for node in self.nodes:
            node.is_frozen = False
        until = self.now + seconds
        while self.now < until:
            for _ in range(30):
                for node in self.nodes:
                    self.store(node)
                    self.read(node)
                    self.deliver(node)
            for node in self.nodes:
                self.runner_start(node)
            self.advance(0.1)

    def holder(self) -> str:
        """Owner of the record while it is HELD."""
        return self.record.owner if self.record is not None and self.record.state == HELD else ""
