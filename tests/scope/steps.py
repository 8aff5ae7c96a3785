"""What may happen next in a :class:`World`: prompt steps, steps that take their time, and faults.

A step is its name and its object. *Prompt* steps come before time goes on: an answer of NATS, a kernel's
doing. *Slow* ones may come at any later time: a run ends, a frozen process thaws, a late write arrives.
A *fault* is used up from the budget. Everything else about order is left open.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any, Final, NamedTuple, cast

from signalbox import job as life
from signalbox.errors import Conflict, Unavailable
from signalbox.messages import ErrorInfo, Record
from signalbox.records import is_same_write
from tests.scope.nodes import GPU, InHand, Node, born
from tests.scope.world import JOBS, NS, Late, Old, World
from workers import moves
from workers.commits import Change, Commits
from workers.hand import Held


class Step(NamedTuple):
    """of: a worker, or the number of a job, an old runner or a late write. order: in which workers hear of it,
    where that is not the alphabet's."""

    name: str
    of: str | int = ""
    order: str = ""

    def __str__(self) -> str:
        told = f"{self.name.replace('_', ' ')} {self.of}".strip()
        return f"{told}, heard in the order {self.order}" if self.order else told


# -- prompt ----------------------------------------------------------------------------------------------


def server_answers(world: World, node: Node) -> None:
    op, node.op = node.op, None
    assert op is not None
    world.post(node.name, world.store(op.write, node.name, node.lease.me.boot, op.at))


def write_fails(world: World, node: Node) -> None:
    node.op = None
    world.todo.append((node.name, moves.Failed(is_unsure=False)))


def flock_comes_free_for(world: World, node: Node) -> None:
    world.take(node)


def runner_dies(world: World, node: Node) -> None:
    node.runner, node.is_user, node.is_stuck = "none", False, False
    world.feed(node, "died", 1, 0)


def old_runner_dies(world: World, number: int) -> None:
    old = world.old[number]
    world.old = world.old[:number] + world.old[number + 1 :]
    if old.is_holder:
        del world.flocks[old.host]


def record_expires(world: World, _: str) -> None:
    world.put(None, 0)


def job_is_written(world: World, node: Node) -> None:
    """The worker writes its claim, its end or its requeue; where that is refused it looks and decides."""
    hand = node.hand
    assert hand is not None
    try:
        made = make(node, hand)
    except Conflict:
        world.acknowledge(node)
        return
    node.hand = hand._replace(made=made)
    if world.store_job(hand.job, made, hand.revision):
        is_written(world, node)
    else:
        resolve(world, node)


# -- slow ------------------------------------------------------------------------------------------------


def run_ends(world: World, node: Node) -> None:
    assert node.hand is not None
    node.hand = node.hand._replace(phase="commit")


def runner_leaves(world: World, node: Node) -> None:
    """In its own time; its guard's patience bounds it."""
    node.runner, node.is_user = "out", False
    world.feed(node, "left")


def thaws_and_hears_nats(world: World, node: Node) -> None:
    """What comes first after a pause is chance: NATS, the guard, a timer, or what it was about to write."""
    thaw(world, node, node.inbox, node.words)


def thaws_and_hears_its_guard(world: World, node: Node) -> None:
    thaw(world, node, node.words, node.inbox)


def thaws_and_its_timer_fires(world: World, node: Node) -> None:
    thaw(world, node, (moves.Tick(),), node.words, node.inbox)


def thaws_and_writes(world: World, node: Node) -> None:
    node.is_frozen = False
    job_is_written(world, node)
    node.is_frozen = True
    thaw(world, node, node.words, node.inbox)


def is_connected_again(world: World, node: Node) -> None:
    node.is_cut = False
    world.sync_line(node)
    if not node.is_frozen:
        world.todo.append((node.name, moves.Tick()))
    if not node.is_frozen:
        world.read(node)  # as Lane._resync does


def starts_again(world: World, node: Node) -> None:
    fresh = born(world.machines, node.name, node.life + 1, node.host)
    fresh.is_cut = node.is_cut
    world.nodes[node.name] = fresh
    world.sync_line(fresh)
    world.wake(node.name)


def runner_is_ready(world: World, node: Node) -> None:
    node.runner = "out"
    world.feed(node, "spawned", 1)
    world.report(node.name, moves.RunnerReady())


def answer_arrives(world: World, node: Node) -> None:
    op, node.op = node.op, None
    assert op is not None
    assert op.answer is not None
    world.post(node.name, op.answer)


def read_is_answered(world: World, node: Node) -> None:
    seen, node.reading = node.reading, None
    assert seen is not None
    world.todo.append((node.name, moves.Read.FAILED if node.is_cut else seen))


def late_write_arrives(world: World, number: int) -> None:
    late = world.late[number]
    world.late = world.late[:number] + world.late[number + 1 :]
    if late.lease is not None:
        world.store(late.lease, late.name, late.boot, late.at)
    elif late.record is not None:
        world.store_job(late.job, late.record, late.expect)


def overdue_record_expires(world: World, _: str) -> None:
    world.put(None, 0)


def stuck_runner_dies(world: World, node: Node) -> None:
    runner_dies(world, node)


def stuck_old_runner_dies(world: World, number: int) -> None:
    old_runner_dies(world, number)


def job_is_redelivered(world: World, number: int) -> None:
    world.set_job(number, world.jobs[number]._replace(owner=""))
    idle = {
        name for name, node in world.nodes.items()
        if node.is_held and node.hand is None and not node.is_frozen
    }  # fmt: skip
    world.todo += [(name, moves.Tick()) for name in world.in_order(idle)]


def ticket_expires(world: World, node: Node) -> None:
    world.remove_ticket(node.name)


def time_passes(world: World, _: str) -> None:
    """One tick: guards' deadlines first, then what timed out, then the supervisors' timers."""
    world.now += 1
    for name in world.in_order(
        {name for name, node in world.nodes.items() if is_bounded(world, node)}
    ):
        node = world.nodes[name]
        if is_guard_due(world, node):
            world.feed(world.own(name), "timer")
        if node.op is not None and node.op.fate != "sent" and world.now > node.op.at:
            world.own(name).op = None
            world.post(name, moves.Failed(is_unsure=True))
    due = {
        name for name, node in world.nodes.items()
        if not (node.is_frozen or node.is_down) and is_due(world, node)
    }  # fmt: skip
    world.todo += [(name, moves.Tick()) for name in world.in_order(due)]


# -- faults ----------------------------------------------------------------------------------------------


def supervisor_is_killed(world: World, node: Node) -> None:
    leave_old_runner(world, node)
    fresh = born(world.machines, node.name, node.life, node.host)
    fresh.guard.runner = 0
    fresh.runner, fresh.is_down, fresh.is_cut = "none", True, node.is_cut
    fresh.stored_at = node.stored_at
    world.nodes[node.name] = fresh


def guard_is_killed(world: World, node: Node) -> None:
    leave_old_runner(world, node)
    node.runner, node.is_user, node.is_stuck, node.is_guard_dead = "none", False, False, True
    world.report(node.name, moves.GuardGone())


def supervisor_is_frozen(world: World, node: Node) -> None:
    node.is_frozen = True


def connection_is_cut(world: World, node: Node) -> None:
    """Both ways; the lines say so at once."""
    node.is_cut = True
    node.inbox = ()
    if node.op is not None and node.op.fate != "sent":
        node.op = None
        if not node.is_frozen:
            world.todo.append((node.name, moves.Failed(is_unsure=True)))
        else:
            node.inbox = (moves.Failed(is_unsure=True),)


def runner_crashes(world: World, node: Node) -> None:
    runner_dies(world, node)


def runner_gets_stuck(world: World, node: Node) -> None:
    """In the kernel, where no signal reaches it."""
    node.is_stuck = True


def old_runner_gets_stuck(world: World, number: int) -> None:
    old = list(world.old)
    old[number] = old[number]._replace(is_stuck=True)
    world.old = tuple(old)


def next_event_is_lost_for(world: World, node: Node) -> None:
    node.is_deaf = True


def next_read_is_slow_for(world: World, node: Node) -> None:
    node.is_slow_reader = True


def answer_is_lost(world: World, node: Node) -> None:
    assert node.op is not None
    world.store(node.op.write, node.name, node.lease.me.boot, node.op.at)
    node.op = node.op._replace(fate="lost")


def answer_tarries(world: World, node: Node) -> None:
    op = node.op
    assert op is not None
    answer = world.store(op.write, node.name, node.lease.me.boot, op.at)
    node.op = op._replace(fate="slow", answer=cast("moves.Written | moves.Refused", answer))


def write_is_late(world: World, node: Node) -> None:
    op = node.op
    assert op is not None
    boot = node.lease.me.boot
    world.late += (Late(-1, node.name, boot, op.at, op.write.expect, lease=op.write),)
    node.op = op._replace(fate="lost")


def answer_about_job_is_lost(world: World, node: Node) -> None:
    hand = node.hand
    assert hand is not None
    made = make(node, hand)
    node.hand = hand._replace(made=made)
    world.store_job(hand.job, made, hand.revision)


def write_of_job_is_late(world: World, node: Node) -> None:
    hand = node.hand
    assert hand is not None
    made = make(node, hand)
    node.hand = hand._replace(made=made)
    boot = node.lease.me.boot
    world.late += (Late(hand.job, node.name, boot, world.now, hand.revision, record=made),)


def server_clock_leaps_ahead(world: World, _: str) -> None:
    world.put(None, 0)


def server_clock_falls_back(world: World, _: str) -> None:
    world.expires_at, world.is_overdue = 0, True


def stream_is_lost(world: World, _: str) -> None:
    world.sequence = world.revision = world.expires_at = 0
    world.record, world.is_overdue, world.is_wiped = None, False, True
    world.late = tuple(late for late in world.late if late.lease is None)


def queue_loses_patience(world: World, number: int) -> None:
    job_is_redelivered(world, number)


# -- what they share -------------------------------------------------------------------------------------


def is_guard_due(world: World, node: Node) -> bool:
    """Whether its deadline has passed."""
    return not node.is_guard_dead and 0 < node.guard.deadline_ns <= world.now * NS


def is_bounded(world: World, node: Node) -> bool:
    """Whether its guard or a write of its supervisor runs out of time in this tick."""
    return is_guard_due(world, node) or (
        node.op is not None and node.op.fate != "sent" and world.now > node.op.at
    )


def is_due(world: World, node: Node) -> bool:
    """Whether a timer of a supervisor has run out."""
    ticket_at = node.ticket.next_at()
    return node.lease.wake_at <= world.now or (ticket_at is not None and ticket_at <= world.now)


def thaw(world: World, node: Node, *mail: tuple[moves.Event, ...]) -> None:
    """All that has come meanwhile, in this order; then the timers that ran out."""
    node.is_frozen, node.inbox, node.words = False, (), ()
    world.sync_line(node)
    world.todo += [(node.name, event) for part in mail for event in part]
    world.todo.append((node.name, moves.Tick()))


def leave_old_runner(world: World, node: Node) -> None:
    """Its guard is gone: the kernel kills it, and frees the flock when it is dead."""
    is_holder = world.flocks.get(node.host) == node.name
    if node.runner == "none" or not (
        is_holder or node.is_user
    ):  # nobody waits for that one's death
        if is_holder:
            del world.flocks[node.host]
        return
    world.old += (Old(node.host, node.is_user, is_holder, node.is_stuck),)
    if is_holder:
        world.flocks[node.host] = "old"


def make(node: Node, hand: InHand) -> Record:
    """The record that a worker tries to write. Raises :class:`Conflict` if the job has ended."""
    if hand.phase == "claim":
        return life.claimed(
            JOBS[hand.job], hand.record, worker=node.name, gpu=GPU, token=hand.token, now=0.0
        )
    before = hand.record
    assert before is not None
    if hand.phase == "commit":
        return life.succeeded(before, now=0.0, phases={}, batch=1, size_bytes=0)
    why = ErrorInfo(code=Unavailable.code, message="")
    return life.requeued(before, why, is_crash=True)


def is_written(world: World, node: Node) -> None:
    """What a session does next."""
    hand = node.hand
    assert hand is not None
    job = world.jobs[hand.job]
    if hand.phase == "claim":
        node.hand = InHand(hand.job, "running", hand.token, job.record, job.revision)
    elif hand.phase == "commit":
        world.acknowledge(node)
    else:
        world.let_go(node)


def resolve(world: World, node: Node) -> None:
    """The decisions of :meth:`Commits._resolve`, its rules about who may write asked of itself."""
    hand = node.hand
    assert hand is not None
    assert hand.made is not None
    job = world.jobs[hand.job]
    found = job.record
    node.hand = hand._replace(record=found, revision=job.revision)
    if found is not None and is_same_write(found, hand.made):
        is_written(world, node)
    elif found is not None and found.state.is_terminal:
        world.acknowledge(node)
    elif not may_write(hand, found):
        world.let_go(node, is_said=False)


def may_write(hand: InHand, found: Record | None) -> bool:
    """Production's own rule."""
    commits = Commits.__new__(Commits)
    commits._gpu, commits._token = GPU, hand.token
    held = Held.__new__(Held)
    held.claim = None
    change = Change(held, lambda before: before, is_claim=hand.phase == "claim")
    change.before = hand.record
    return commits._may_write(change, found)


# -- which steps are possible ----------------------------------------------------------------------------

OfNode = Callable[[World, Node], bool]
OfWorld = Callable[[World], bool]


def is_awake(node: Node) -> bool:
    return not (node.is_frozen or node.is_down)


def is_about_to_write(node: Node) -> bool:
    return node.hand is not None and node.hand.phase != "running"


def is_writing_job(world: World, node: Node) -> bool:
    return is_awake(node) and not node.is_cut and is_about_to_write(node)


def may_flock(world: World, node: Node) -> bool:
    return node.guard.is_waiting and not node.is_guard_dead and node.host not in world.flocks


def is_sent(world: World, node: Node) -> bool:
    return node.op is not None and node.op.fate == "sent" and not node.is_cut


def is_running(world: World, node: Node) -> bool:
    return (
        is_awake(node) and node.hand is not None and node.hand.phase == "running"
        and node.runner == "in" and node.lease.is_inside and node.lease.token == node.hand.token
    )  # fmt: skip


def is_ticket_dead(world: World, node: Node) -> bool:
    ticket = world.tickets.get(node.name)
    is_renewed = ticket is not None and ticket[2] == node.lease.me.boot and not node.is_down
    return ticket is not None and (not is_renewed or node.is_frozen or node.is_cut)


PROMPT: Final[dict[Callable[[World, Node], None], OfNode]] = {
    server_answers: is_sent,
    write_fails: lambda _, node: node.op is not None and node.op.fate == "sent" and node.is_cut and is_awake(node),
    flock_comes_free_for: may_flock,
    runner_dies: lambda _, node: node.runner == "dying" and not node.is_stuck,
    job_is_written: is_writing_job,
}  # fmt: skip
SLOW: Final[dict[Callable[[World, Node], None], OfNode]] = {
    run_ends: is_running,
    runner_leaves: lambda _, node: node.runner == "leaving",
    thaws_and_hears_nats: lambda _, node: node.is_frozen,
    thaws_and_hears_its_guard: lambda _, node: node.is_frozen and bool(node.words) and bool(node.inbox),
    thaws_and_its_timer_fires: lambda _, node: node.is_frozen and bool(node.words or node.inbox),
    thaws_and_writes: lambda _, node: node.is_frozen and not node.is_cut and is_about_to_write(node),
    is_connected_again: lambda _, node: node.is_cut,
    starts_again: lambda _, node: node.is_down,
    runner_is_ready: lambda _, node: node.runner == "none" and not node.is_down and not node.is_guard_dead,
    answer_arrives: lambda _, node: node.op is not None and node.op.fate == "slow" and not node.is_cut,
    read_is_answered: lambda _, node: node.reading is not None and is_awake(node),
    stuck_runner_dies: lambda _, node: node.is_stuck,
    ticket_expires: is_ticket_dead,
}  # fmt: skip
FAULTS: Final[dict[Callable[[World, Node], None], OfNode]] = {
    supervisor_is_killed: lambda _, node: not node.is_down,
    guard_is_killed: lambda _, node: not node.is_down and not node.is_guard_dead,
    supervisor_is_frozen: lambda _, node: is_awake(node),
    connection_is_cut: lambda _, node: not node.is_cut and not node.is_down,
    runner_crashes: lambda _, node: node.runner in {"in", "leaving"} or (node.runner == "out" and is_awake(node)),
    runner_gets_stuck: lambda _, node: node.runner == "dying" and node.is_user and not node.is_stuck,
    next_event_is_lost_for: lambda _, node: is_awake(node) and not node.is_cut and not node.is_deaf,
    next_read_is_slow_for: lambda _, node: (
        is_awake(node) and not node.is_cut and not node.is_slow_reader and node.reading is None
    ),
    answer_is_lost: is_sent,
    answer_tarries: is_sent,
    write_is_late: is_sent,
    answer_about_job_is_lost: lambda world, node: is_writing_job(world, node) and is_fresh_write(world, node),
    write_of_job_is_late: lambda world, node: is_writing_job(world, node) and is_fresh_write(world, node),
}  # fmt: skip


def is_fresh_write(world: World, node: Node) -> bool:
    """Whether what a worker tries to write for a job could be stored."""
    hand = node.hand
    return hand is not None and hand.revision == world.jobs[hand.job].revision and (
        hand.record is None or not hand.record.state.is_terminal
    )  # fmt: skip


def prompt_steps(world: World) -> Iterator[Step]:
    """What comes before time goes on."""
    for name, node in world.nodes.items():
        for act, may in PROMPT.items():
            if may(world, node):
                yield Step(act.__name__, name)
    for number, old in enumerate(world.old):
        if not old.is_stuck:
            yield Step("old_runner_dies", number)
    if world.expires_at and world.now >= world.expires_at:
        yield Step("record_expires")


def slow_steps(world: World) -> Iterator[Step]:
    """What may come at any time."""
    for name, node in world.nodes.items():
        for act, may in SLOW.items():
            if may(world, node):
                yield Step(act.__name__, name)
    for number, old in enumerate(world.old):
        if old.is_stuck:
            yield Step("stuck_old_runner_dies", number)
    for number in range(len(world.late)):
        yield Step("late_write_arrives", number)
    if world.is_overdue:
        yield Step("overdue_record_expires")
    for number, job in enumerate(world.jobs):
        if job.owner and not is_kept_in_hand(world, number):
            yield Step("job_is_redelivered", number)


def faults(world: World) -> Iterator[Step]:
    """What one more fault may be."""
    for name, node in world.nodes.items():
        for act, may in FAULTS.items():
            if may(world, node):
                yield Step(act.__name__, name)
    for number, old in enumerate(world.old):
        if not old.is_stuck and old.is_user:
            yield Step("old_runner_gets_stuck", number)
    is_one_host = len(set(world.machines.hosts)) == 1
    if is_one_host and world.record is not None:
        if world.expires_at:
            yield Step("server_clock_leaps_ahead")
            yield Step("server_clock_falls_back")
        yield Step("stream_is_lost")
    for number in range(len(world.jobs)):
        if is_kept_in_hand(world, number):
            yield Step("queue_loses_patience", number)


def is_kept_in_hand(world: World, number: int) -> bool:
    """Whether the worker that has a job tells the queue so."""
    owner = world.jobs[number].owner
    return any(
        node.lease.me.boot == owner and node.hand is not None and node.hand.job == number
        and is_awake(node) and not node.is_cut
        for node in world.nodes.values()
    )  # fmt: skip


def orders(step: Step, after: World) -> Iterator[Step]:
    """The same step, heard in each other order of those for whom that makes a difference."""
    told = "".join(sorted(after.asked))
    for order in permutations(told):
        if (turn := "".join(order)) != told:
            rest = "".join(name for name in after.nodes if name not in turn)
            yield step._replace(order=turn + rest)


def taken(world: World, step: Step) -> World:
    """The state after ``step``. Raises :class:`Violation`."""
    after = world.copied()
    after.ears = step.order or after.ears
    act = _ACTS[step.name]
    if step.name in FAULT_NAMES:
        after.faults += 1
    act(after, after.own(step.of) if isinstance(step.of, str) and step.of else step.of)
    after.run()
    return after


KINDS: Final[dict[str, frozenset[str]]] = {
    "kill": frozenset({"supervisor_is_killed"}),
    "guard": frozenset({"guard_is_killed"}),
    "runner": frozenset({"runner_crashes", "runner_gets_stuck", "old_runner_gets_stuck"}),
    "freeze": frozenset({"supervisor_is_frozen"}),
    "cut": frozenset({"connection_is_cut"}),
    "loss": frozenset({"next_event_is_lost_for", "answer_is_lost", "answer_about_job_is_lost"}),
    "delay": frozenset({
        "next_read_is_slow_for", "answer_tarries", "write_is_late", "write_of_job_is_late",
    }),
    "clock": frozenset({"server_clock_leaps_ahead", "server_clock_falls_back"}),
    "stream": frozenset({"stream_is_lost"}),
    "queue": frozenset({"queue_loses_patience"}),
}  # fmt: skip
"""Of faults, for explorations of more of a few kinds than all kinds allow."""
FAULT_NAMES: Final = frozenset[str]().union(*KINDS.values())


def faults_of(kinds: str) -> frozenset[str]:
    """The faults of some kinds, which commas part."""
    return frozenset[str]().union(*(KINDS[kind] for kind in kinds.split(",")))


assert {act.__name__ for act in FAULTS} < FAULT_NAMES, "a fault is of no kind"
_ACTS: Final[dict[str, Callable[[World, Any], None]]] = {
    act.__name__: cast("Callable[[World, Any], None]", act)
    for act in (
        *PROMPT, *SLOW, *FAULTS, old_runner_dies, record_expires, stuck_old_runner_dies,
        late_write_arrives, overdue_record_expires, job_is_redelivered, old_runner_gets_stuck,
        server_clock_leaps_ahead, server_clock_falls_back, stream_is_lost, queue_loses_patience,
        time_passes,
    )
}  # fmt: skip
