"""The surroundings of the state machines: NATS with compare-and-set and TTL, flocks, processes, two jobs.

A state is a :class:`World`; it is copied before it is changed. ``now`` counts ticks. Each public method
of :mod:`verification.scope.steps` is one step of the exploration; this module holds what they have in common:
carrying out effects as :mod:`workers.device.leased` and :mod:`workers.guard.process` do, and the laws that are checked
at every change.
"""

from collections import deque
from collections.abc import Container
from operator import attrgetter
from typing import Final, NamedTuple

from signalbox.wire import messages, workerdocs
from verification.scope.nodes import RULES, InHand, Machines, Node, Op, born, new_guard
from workers.guard.machine import LEAVE_NS
from workers.lease import effects, events
from workers.lease.machine import FREE, HELD, Flock
from workers.lease.tickets import DropTicket

NS: Final = LEAVE_NS // 2
"""A tick to the guard. A kept runner's patience is two ticks, as long as a fence: were it one, a leave could never end
after the lease's deadline, for the timer of that deadline comes first in its tick."""
JOBS: Final = tuple(
    messages.Job(id=f"j{n}", model="m", version=1, signature="s", account_id="k", created_at=0.0, deadline_at=1e9)
    for n in range(2)
)


class Violation(AssertionError):
    """A law is broken."""


class Stored(NamedTuple):
    """A job as the server has it: its record, and to whom the queue has delivered it."""

    record: messages.Record | None = None
    revision: int = 0
    owner: str = ""
    is_again: bool = False
    is_over: bool = False


class Old(NamedTuple):
    """A runner whose guard has died: SIGKILL is on its way."""

    host: str
    is_user: bool
    is_holder: bool
    is_stuck: bool = False


class Late(NamedTuple):
    """A write that its writer has given up on and that may still arrive. job < 0: of the lease."""

    job: int
    name: str
    boot: str
    at: int
    expect: int
    lease: effects.WriteRecord | None = None
    record: messages.Record | None = None


class World:
    """One state. flocks: who holds each host's: a node's name, or ``old``. floors: the token in its lock file.

    highest, used: the highest token that any runner was let in under, and the last stay. ears: who receives first
    in the present step; asked: for whom that made a difference.
    """

    __slots__ = (
        "asked",
        "ears",
        "expires_at",
        "faults",
        "flocks",
        "floors",
        "fresh",
        "highest",
        "is_overdue",
        "is_wiped",
        "jobs",
        "late",
        "machines",
        "nodes",
        "now",
        "old",
        "record",
        "revision",
        "sequence",
        "ticket_sequence",
        "tickets",
        "todo",
        "used",
    )

    def __init__(self, machines: Machines, workers: int, jobs: int) -> None:
        self.machines = machines
        self.now, self.faults = 100, 0
        self.nodes: dict[str, Node] = {}
        self.fresh: set[str] = set()
        self.todo: deque[tuple[str, events.Event]] = deque()
        self.record: workerdocs.Lease | None = None
        self.revision = self.sequence = self.ticket_sequence = 0
        self.expires_at = 0
        self.is_overdue = self.is_wiped = False
        self.highest, self.used = 0, ("", 0)
        self.flocks: dict[str, str] = {}
        self.floors: dict[str, int] = {}
        self.tickets: dict[str, tuple[int, int, str]] = {}
        self.old: tuple[Old, ...] = ()
        self.late: tuple[Late, ...] = ()
        self.jobs: tuple[Stored, ...] = (Stored(),) * jobs
        self.ears, self.asked = "abcde"[:workers], set[str]()
        for number, name in enumerate(self.ears):
            self.nodes[name] = born(machines, name, 0, machines.hosts[number])
            self.fresh.add(name)
            self.wake(name)
        self.run()

    def copied(self) -> "World":
        """The same state in another object; nodes are copied when first touched."""
        twin = World.__new__(World)
        for name, value in zip(World.__slots__, _all_of(self), strict=True):
            setattr(twin, name, value)
        twin.nodes, twin.fresh, twin.todo = dict(self.nodes), set(), deque()
        twin.ears, twin.asked = "".join(self.nodes), set()
        twin.flocks, twin.tickets = dict(self.flocks), dict(self.tickets)
        twin.floors = dict(self.floors)
        return twin

    def own(self, name: str) -> Node:
        """A node that may be changed."""
        if name not in self.fresh:
            self.nodes[name] = self.nodes[name].copied()
            self.fresh.add(name)
        return self.nodes[name]

    def in_order(self, names: Container[str]) -> list[str]:
        """Those of ``names`` that receive an event at once, in the order of this step."""
        reported = [name for name in self.ears if name in names]
        if len(reported) > 1:
            self.asked.update(reported)
        return reported

    def awake(self) -> list[str]:
        """Who receives at once of what happens."""
        return self.in_order(
            {name for name, node in self.nodes.items() if not (node.is_frozen or node.is_cut or node.is_down)}
        )

    def wake(self, name: str) -> None:
        """A supervisor's first events."""
        self.todo += [(name, events.Intent(is_wanted=True)), (name, events.RunnerReady())]

    @property
    def is_done(self) -> bool:
        """All jobs have ended and left the queue."""
        return all(job.is_over for job in self.jobs)

    # -- supervisors -----------------------------------------------------------------------------------

    def post(self, name: str, event: events.Event) -> None:
        """A message or an answer arrives from NATS."""
        node = self.nodes[name]
        if node.is_down or node.is_cut:
            return
        if node.is_frozen or node.inbox:
            node = self.own(name)
            node.inbox = _kept(node.inbox, event)
        else:
            self.todo.append((name, event))

    def report(self, name: str, event: events.Event) -> None:
        """The guard reports."""
        node = self.nodes[name]
        if node.is_frozen or node.words:
            self.own(name).words += (event,)
        else:
            self.todo.append((name, event))

    def run(self) -> None:
        """Carry effects out until no further one follows."""
        while self.todo:
            name, event = self.todo.popleft()
            node = self.own(name)
            if isinstance(event, events.GuardGone):
                self.replace_guard(node)
            if isinstance(event, events.RunnerDied) and node.hand and node.hand.phase == "running":
                node.hand = node.hand._replace(phase="requeue")
            for effect in node.lease.on(event, self.now):
                self.act(node, effect)
            self.settle(node)
        self.check()

    def settle(self, node: Node) -> None:
        """What :meth:`LeasedDevice._settle` does, and what a session does when it sees what has changed."""
        lease = node.lease
        if lease.held is None and self.used[0] == lease.me.boot:
            self.used = ("", 0)  # that stay is over: its token is used up
        is_leaving = lease.held is None or lease.held.is_releasing
        if node.is_held and lease.flock is Flock.NONE and is_leaving:
            self.end_hold(node)
        node.ticket.want(lease.needs_ticket, self.now)
        self.write_ticket(node)
        if not node.is_held or lease.held is None or lease.held.is_releasing:
            return
        if node.is_yielding and node.hand is None:
            self.todo.append((node.name, events.ReleaseAsked()))
        elif node.hand is None:
            self.pull(node)

    def write_ticket(self, node: Node) -> None:
        """Tickets are written, stored and learned of at once."""
        write = node.ticket.due(self.now)
        if write is None:
            return
        if node.is_cut:
            node.ticket.failed(self.now)
            return
        number, revision, _ = self.tickets.get(node.name, (0, 0, ""))
        if write.expect != revision:
            node.ticket.refused(revision, self.now)
            self.write_ticket(node)
            return
        self.ticket_sequence += 1
        if isinstance(write, DropTicket):
            node.ticket.written(self.ticket_sequence, self.now)
            self.remove_ticket(node.name)
        else:
            number = write.ticket.number or self.ticket_sequence
            node.ticket.written(self.ticket_sequence, self.now)
            self.tickets[node.name] = (number, self.ticket_sequence, write.ticket.boot)
            for name in self.awake():
                self.own(name).lease.waiters.put(node.name, number)
                self.todo.append((name, events.Tick()))

    def remove_ticket(self, owner: str) -> None:
        """Delete or expire the record, which all workers receive. Its marker goes soon after."""
        self.tickets.pop(owner, None)
        for name in self.awake():
            self.own(name).lease.waiters.drop(owner)
            self.todo.append((name, events.Tick()))

    def sync_line(self, node: Node) -> None:
        """Read the wait queue anew, as after a reconnect, and renew the own ticket in it."""
        node.ticket._next_at = min(node.ticket._next_at, self.now)
        node.lease.waiters.clear()
        for name, (number, _, _) in self.tickets.items():
            node.lease.waiters.put(name, number)

    # -- effects ---------------------------------------------------------------------------------------

    def act(self, node: Node, effect: effects.Effect) -> None:
        """Carry out one effect of a lease."""
        match effect:
            case effects.WriteRecord():
                self.send(node, effect)
            case effects.ReadLeader():
                self.read(node)
            case effects.Lock():
                self.order(node, "lock", int(RULES.fence_s * NS))
            case effects.Unlock():
                self.order(node, "unlock")
            case effects.Enter(token, deadline):
                self.order(node, "enter", token, int(deadline * NS))
            case effects.Deadline(at):
                self.order(node, "deadline", int(at * NS))
            case effects.Leave():
                self.order(node, "leave")
            case effects.Fence():
                self.order(node, "fence")
            case effects.Gained():
                node.is_held = True
            case effects.AskYield():
                node.is_yielding = node.is_held
            case effects.Ended():
                self.end_hold(node)

    def read(self, node: Node) -> None:
        """The leader answers at once, or with what was true then, later."""
        seen = events.Observed(self.record, self.revision, is_leader=True)
        if node.is_cut:
            self.todo.append((node.name, events.ReadFailed()))
        elif node.is_slow_reader:
            node.is_slow_reader, node.reading = False, seen
        else:
            self.todo.append((node.name, seen))

    def send(self, node: Node, write: effects.WriteRecord) -> None:
        """A lease write goes out. A lease that another still holds may be seized only under the flock."""
        if node.op is not None:
            raise Violation(f"{node.name} has two writes in flight")
        seen = node.lease._seen.record if node.lease._seen else None
        is_seizure = (
            seen is not None
            and seen.state == HELD
            and node.lease.held is None
            and write.record.state == HELD
            and seen.boot != write.record.boot
        )
        unseen = [event for name, event in self.todo if name == node.name]
        # Its guard may have lost the flock and said so to a supervisor that has not listened yet.
        knows = not node.is_guard_dead and not any(
            isinstance(event, events.Unlocked | events.GuardGone) for event in (*node.words, *unseen)
        )
        if is_seizure and knows and seen is not None:
            has_flock = self.flocks.get(node.host) == node.name
            if not has_flock or seen.host != node.host:
                raise Violation(f"{node.name} seizes {seen.boot}'s lease without proof of its death")
        node.op = Op(write, self.now)

    def end_hold(self, node: Node) -> None:
        """The session has the jobs that it has in flight delivered again."""
        node.is_held = node.is_yielding = False
        self.let_go(node)

    def order(self, node: Node, verb: str, *numbers: int) -> None:
        """A word to the guard."""
        if not node.is_guard_dead:
            self.feed(node, verb, *numbers)

    # -- guards, runners, flocks -----------------------------------------------------------------------

    def feed(self, node: Node, event: str, *numbers: int) -> None:
        """Give a guard one event and carry out what it decides."""
        for verb, what in node.guard.on(event, *numbers, now_ns=self.now * NS):
            self.carry_out(node, verb, what)

    def carry_out(self, node: Node, verb: str, what: int | str) -> None:
        """One effect of a guard."""
        match verb:
            case "tell":
                self.tell(node, str(what))
            case "say" if what == "leave":
                node.runner = "leaving" if node.runner == "in" else node.runner
            case "say" if node.runner in {"out", "in"}:
                self.enter(node, int(str(what).split()[1]))
            case "store":
                self.floors[node.host] = int(what)
                self.feed(node, "stored", int(what))
            case "kill" if node.runner != "none":
                node.runner = "dying"
            case "try" if node.host in self.flocks:
                self.feed(node, "busy")
            case "try":
                self.take(node)
            case "unlock" | "reopen" if self.flocks.get(node.host) == node.name:
                if node.is_user and verb == "unlock":
                    raise Violation(f"{node.name} gives the flock back and its runner is inside")
                del self.flocks[node.host]

    def replace_guard(self, node: Node) -> None:
        """The supervisor has noticed its guard's end and starts another."""
        node.guard, node.is_guard_dead = new_guard(self.machines), False
        node.guard.runner = 0
        node.runner, node.is_user, node.is_stuck = "none", False, False

    def take(self, node: Node) -> None:
        """The kernel gives it the flock."""
        self.flocks[node.host] = node.name
        self.feed(node, "taken", self.floors.get(node.host, 0))

    def tell(self, node: Node, text: str) -> None:
        """A report of the guard, as :meth:`LeasedDevice._on_report` reads it."""
        verb, *numbers = text.split()
        match verb:
            case "locked":
                self.report(node.name, events.Locked(int(numbers[0])))
            case "left" | "unlocked":
                self.report(node.name, events.Unlocked())
            case "fenced":
                self.report(node.name, events.Unlocked(is_fenced=True))
            case "entered":
                self.report(node.name, events.Entered(int(numbers[0])))
            case "died":
                self.report(node.name, events.RunnerDied())

    def enter(self, node: Node, token: int) -> None:
        """A runner begins to use the device: the tokens of those who do only grow."""
        stay = (f"{node.name}.{node.life}", token)
        if stay != self.used and token <= self.highest:
            raise Violation(f"{node.name} enters under token {token} after {self.highest}")
        self.highest, self.used = max(self.highest, token), stay
        node.runner, node.is_user = "in", True
        self.feed(node, "in", token)

    def users(self) -> list[str]:
        """Whose runners may be touching the device now."""
        names = [node.name for node in self.nodes.values() if node.is_user]
        return names + ["old" for old in self.old if old.is_user]

    def check(self) -> None:
        """S1 and S3 in this state."""
        users = self.users()
        if len(users) > 1:
            raise Violation(f"{' and '.join(users)} use the device at once")
        for node in self.nodes.values():
            if node.is_user and not node.is_stuck:
                # The guard is prompt; what takes its time is the end of a process. One that leaves of itself
                # is killed at the deadline too.
                is_dying = node.runner == "dying"
                bound = RULES.fence_s + (RULES.kill_s + 1 if is_dying else 0)
                if self.now >= node.stored_at + bound:
                    raise Violation(f"{node.name}'s runner has outlived its lease")

    # -- NATS: the lease -------------------------------------------------------------------------------

    def store(self, write: effects.WriteRecord, name: str, boot: str, at: int) -> events.Event:
        """Compare and set. All workers learn of what is stored."""
        expect: int | None = write.expect  # a broken machine may expect nothing
        if expect is not None and expect != self.revision:
            return events.WriteRefused()
        if write.record.state == HELD and not write.ttl_s:
            raise Violation(f"{boot} holds the lease for ever")
        self.check_chain(write.record)
        node = self.nodes[name]
        if node.lease.me.boot == boot:
            self.own(name).stored_at = max(node.stored_at, at)
        self.put(write.record, write.ttl_s)
        return events.Written(self.revision)

    def check_chain(self, new: workerdocs.Lease) -> None:
        """S2: who stores FREE held the lease until then. A stream made anew repeats its revisions,
        and with them compare-and-set proves nothing: there only the flock and the tokens protect."""
        old = self.record
        if self.is_wiped or new.state != FREE:
            return
        if old is None or old.state != HELD or old.boot != new.boot:
            raise Violation(f"{new.boot} frees what {old.boot if old else 'no boot'} holds")

    def put(self, record: workerdocs.Lease | None, ttl_s: int | None) -> None:
        """A new revision."""
        self.sequence += 1
        self.record, self.revision, self.is_overdue = record, self.sequence, False
        self.expires_at = self.now + ttl_s if ttl_s else 0
        self.awake()
        for name in self.ears:
            if self.nodes[name].is_deaf:
                self.own(name).is_deaf = False
            else:
                self.post(name, events.Observed(record, self.revision))

    # -- jobs ------------------------------------------------------------------------------------------

    def set_job(self, number: int, job: Stored) -> None:
        """Replace one."""
        self.jobs = (*self.jobs[:number], job, *self.jobs[number + 1 :])

    def pull(self, node: Node) -> None:
        """A holder with empty hands asks the queue."""
        if node.is_cut:
            return
        for number, job in enumerate(self.jobs):
            if job.is_over or job.owner:
                continue
            hand = InHand(number, "claim", node.lease.token)
            if job.is_again:
                hand = hand._replace(record=job.record, revision=job.revision)
            self.set_job(number, job._replace(owner=node.lease.me.boot, is_again=True))
            node.hand = hand
            node.lease.busy()
            return

    def let_go(self, node: Node, *, is_said: bool = True) -> None:
        """The hand is empty; is_said: and the queue is made anew, so that the job is delivered again."""
        hand, node.hand = node.hand, None
        if hand is None:
            return
        job = self.jobs[hand.job]
        if is_said and not node.is_cut and job.owner == node.lease.me.boot:
            self.set_job(hand.job, job._replace(owner=""))
        self.todo.append((node.name, events.Idle(self.now)))

    def finish(self, node: Node) -> None:
        """S8: only what has ended is let go for good."""
        assert node.hand is not None
        job = self.jobs[node.hand.job]
        if job.record is None or not job.record.state.is_terminal:
            raise Violation(f"{node.name} takes a job for ended that has not")
        self.set_job(node.hand.job, job._replace(is_over=True, owner=""))
        self.let_go(node, is_said=False)

    def store_job(self, number: int, record: messages.Record, expect: int | None) -> bool:
        """Compare and set on a job's record, and the laws of its life: S3's order of tokens, S7."""
        job = self.jobs[number]
        if expect is not None and expect != job.revision:
            return False
        before = job.record
        if before is not None and before.state.is_terminal:
            raise Violation(f"job {number} was {before.state} and is now {record.state}")
        if before is not None and record.token < before.token:
            raise Violation(f"token {record.token} writes over token {before.token}")
        self.set_job(number, job._replace(record=record, revision=job.revision + 1))
        return True


_all_of: Final = attrgetter(*World.__slots__)


def _kept(inbox: tuple[events.Event, ...], event: events.Event) -> tuple[events.Event, ...]:
    """A frozen worker's mail: of the record's news the last two, the others are lost as overtaken."""
    inbox = (*inbox, event)
    news = [one for one in inbox if isinstance(one, events.Observed) and not one.is_leader]
    if len(news) > 2:
        return tuple(one for one in inbox if one is not news[0])
    return inbox
