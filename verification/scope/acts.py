"""What each step does to a :class:`World`; when it may come is said in :mod:`verification.scope.steps`.

*Prompt* acts come before time goes on: an answer of NATS, a kernel's doing. *Slow* ones may come at any later time: a
run ends, a frozen process thaws, a late write arrives. Faults are used up from a budget.
"""

from typing import cast

from signalbox.jobs import life
from signalbox.jobs.attempts import Attempt
from signalbox.jobs.changes import RecordChange
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.records import Settled, settled
from signalbox.program.errors import Conflict, Unavailable
from signalbox.wire.messages import ErrorInfo, Record, State
from verification.scope.nodes import GPU, InHand, Node, born
from verification.scope.world import JOBS, NS, Late, Old, World
from workers.lease import events

# -- prompt ----------------------------------------------------------------------------------------------


def server_answers(world: World, node: Node) -> None:
    op, node.op = node.op, None
    assert op is not None
    world.post(node.name, world.store(op.write, node.name, node.lease.me.boot, op.at))


def write_fails(world: World, node: Node) -> None:
    node.op = None
    world.todo.append((node.name, events.WriteFailed(is_unsure=False)))


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
        world.finish(node)
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


def thaws_and_receives_nats(world: World, node: Node) -> None:
    """What comes first after a pause is chance: NATS, the guard, a timer, or what it was about to write."""
    thaw(world, node, node.inbox, node.words)


def thaws_and_receives_its_guard(world: World, node: Node) -> None:
    thaw(world, node, node.words, node.inbox)


def thaws_and_its_timer_fires(world: World, node: Node) -> None:
    thaw(world, node, (events.Tick(),), node.words, node.inbox)


def thaws_and_writes(world: World, node: Node) -> None:
    node.is_frozen = False
    job_is_written(world, node)
    node.is_frozen = True
    thaw(world, node, node.words, node.inbox)


def is_connected_again(world: World, node: Node) -> None:
    node.is_cut = False
    world.sync_line(node)
    if not node.is_frozen:
        world.todo.append((node.name, events.Tick()))
    if not node.is_frozen:
        world.read(node)  # as LeasedDevice._resync does


def starts_again(world: World, node: Node) -> None:
    fresh = born(world.machines, node.name, node.life + 1, node.host)
    fresh.is_cut = node.is_cut
    world.nodes[node.name] = fresh
    world.sync_line(fresh)
    world.wake(node.name)


def runner_is_ready(world: World, node: Node) -> None:
    node.runner = "out"
    world.feed(node, "spawned", 1)
    world.report(node.name, events.RunnerReady())


def answer_arrives(world: World, node: Node) -> None:
    op, node.op = node.op, None
    assert op is not None
    assert op.answer is not None
    world.post(node.name, op.answer)


def read_is_answered(world: World, node: Node) -> None:
    seen, node.reading = node.reading, None
    assert seen is not None
    world.todo.append((node.name, events.ReadFailed() if node.is_cut else seen))


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


def job_is_delivered_again(world: World, number: int) -> None:
    world.set_job(number, world.jobs[number]._replace(owner=""))
    idle = {name for name, node in world.nodes.items() if node.is_held and node.hand is None and not node.is_frozen}
    world.todo += [(name, events.Tick()) for name in world.in_order(idle)]


def ticket_expires(world: World, node: Node) -> None:
    world.remove_ticket(node.name)


def time_passes(world: World, _: str) -> None:
    """One tick: guards' deadlines first, then what timed out, then the supervisors' timers."""
    world.now += 1
    for name in world.in_order({name for name, node in world.nodes.items() if is_bounded(world, node)}):
        node = world.nodes[name]
        if is_guard_due(world, node):
            world.feed(world.own(name), "timer")
        if node.op is not None and node.op.fate != "sent" and world.now > node.op.at:
            world.own(name).op = None
            world.post(name, events.WriteFailed(is_unsure=True))
    due = {name for name, node in world.nodes.items() if not (node.is_frozen or node.is_down) and is_due(world, node)}
    world.todo += [(name, events.Tick()) for name in world.in_order(due)]


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
    world.report(node.name, events.GuardGone())


def supervisor_is_frozen(world: World, node: Node) -> None:
    node.is_frozen = True


def connection_is_cut(world: World, node: Node) -> None:
    """Both ways; the lines say so at once."""
    node.is_cut = True
    node.inbox = ()
    if node.op is not None and node.op.fate != "sent":
        node.op = None
        if not node.is_frozen:
            world.todo.append((node.name, events.WriteFailed(is_unsure=True)))
        else:
            node.inbox = (events.WriteFailed(is_unsure=True),)


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
    node.op = op._replace(fate="slow", answer=cast("events.Written | events.WriteRefused", answer))


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


def job_is_delivered_twice(world: World, number: int) -> None:
    job_is_delivered_again(world, number)


# -- what they share -------------------------------------------------------------------------------------


def is_guard_due(world: World, node: Node) -> bool:
    """Whether its deadline has passed."""
    return not node.is_guard_dead and 0 < node.guard.deadline_ns <= world.now * NS


def is_bounded(world: World, node: Node) -> bool:
    """Whether its guard or a write of its supervisor runs out of time in this tick."""
    return is_guard_due(world, node) or (node.op is not None and node.op.fate != "sent" and world.now > node.op.at)


def is_due(world: World, node: Node) -> bool:
    """Whether a timer of a supervisor has run out."""
    ticket_at = node.ticket.next_at()
    return node.lease.wake_at <= world.now or (ticket_at is not None and ticket_at <= world.now)


def thaw(world: World, node: Node, *mail: tuple[events.Event, ...]) -> None:
    """All that has come meanwhile, in this order; then the timers that ran out."""
    node.is_frozen, node.inbox, node.words = False, (), ()
    world.sync_line(node)
    world.todo += [(node.name, event) for part in mail for event in part]
    world.todo.append((node.name, events.Tick()))


def leave_old_runner(world: World, node: Node) -> None:
    """Its guard is gone: the kernel kills it, and frees the flock when it is dead."""
    is_holder = world.flocks.get(node.host) == node.name
    if node.runner == "none" or not (is_holder or node.is_user):  # no process waits for its death
        if is_holder:
            del world.flocks[node.host]
        return
    world.old += (Old(node.host, node.is_user, is_holder, node.is_stuck),)
    if is_holder:
        world.flocks[node.host] = "old"


def make(node: Node, hand: InHand) -> Record:
    """The record that a worker tries to write. Raises :class:`Conflict` if the job has ended."""
    if hand.phase == "claim":
        return life.claimed(JOBS[hand.job], hand.record, worker=node.name, gpu=GPU, token=hand.token, now=0.0)
    before = hand.record
    assert before is not None
    if hand.phase == "commit":
        return life.succeeded(before, now=0.0, batch=1, size_bytes=0)
    why = ErrorInfo(code=Unavailable.code, message="")
    return life.requeued(before, why, now=0.0, penalty=Penalty.STRIKE)


def is_written(world: World, node: Node) -> None:
    """What a session does next."""
    hand = node.hand
    assert hand is not None
    job = world.jobs[hand.job]
    if hand.phase == "claim":
        node.hand = InHand(hand.job, "running", hand.token, job.record, job.revision)
    elif hand.phase == "commit":
        world.finish(node)
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
    if settled(found, job.revision, hand.made, hand.revision) is Settled.WRITTEN:
        is_written(world, node)
    elif found is not None and found.state.is_terminal:
        world.finish(node)
    elif not may_write(hand, found):
        world.let_go(node, is_said=False)


def may_write(hand: InHand, found: Record | None) -> bool:
    """Production's own rule."""
    change = RecordChange(Attempt(JOBS[hand.job]), lambda before: before, is_claim=hand.phase == "claim")
    change.before = hand.record
    # As Commits.is_attended has it, of the only device there is.
    is_attended = found is not None and found.state is State.RUNNING and found.token > hand.token
    return change.may_write_over(found, is_attended=is_attended)
