"""What may happen next in a :class:`World`: prompt steps, steps that take their time, and faults.

A step is an act (:mod:`verification.scope.acts`) and its object. Any order that is not said here is left open.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any, Final, NamedTuple, cast

from verification.scope import acts
from verification.scope.nodes import Node
from verification.scope.world import World
from workers.lease import events
from workers.lease.machine import RunnerPlace


class Step(NamedTuple):
    """of: a worker, or the number of a job, an old runner or a late write. order: in which workers learn of it,
    where that is not the alphabet's."""

    name: str
    of: str | int = ""
    order: str = ""

    def __str__(self) -> str:
        reported = f"{self.name.replace('_', ' ')} {self.of}".strip()
        return f"{reported}, received in the order {self.order}" if self.order else reported


OfNode = Callable[[World, Node], bool]


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
        is_awake(node)
        and node.hand is not None
        and node.hand.phase == "running"
        and node.runner == "in"
        and node.lease.place is RunnerPlace.IN
        and node.lease.token == node.hand.token
    )


def is_runner_asked_for(node: Node) -> bool:
    """By a supervisor that has learned of the last one's death."""
    is_seen = not any(isinstance(word, events.RunnerDied) for word in node.words)
    return node.runner == "none" and not node.is_down and not node.is_guard_dead and is_seen


def is_ticket_dead(world: World, node: Node) -> bool:
    ticket = world.tickets.get(node.name)
    is_renewed = ticket is not None and ticket[2] == node.lease.me.boot and not node.is_down
    return ticket is not None and (not is_renewed or node.is_frozen or node.is_cut)


PROMPT: Final[dict[Callable[[World, Node], None], OfNode]] = {
    acts.server_answers: is_sent,
    acts.write_fails: lambda _, node: node.op is not None and node.op.fate == "sent" and node.is_cut and is_awake(node),
    acts.flock_comes_free_for: may_flock,
    acts.runner_dies: lambda _, node: node.runner == "dying" and not node.is_stuck,
    acts.job_is_written: is_writing_job,
}
SLOW: Final[dict[Callable[[World, Node], None], OfNode]] = {
    acts.run_ends: is_running,
    acts.runner_leaves: lambda _, node: node.runner == "leaving",
    acts.thaws_and_receives_nats: lambda _, node: node.is_frozen,
    acts.thaws_and_receives_its_guard: lambda _, node: node.is_frozen and bool(node.words) and bool(node.inbox),
    acts.thaws_and_its_timer_fires: lambda _, node: node.is_frozen and bool(node.words or node.inbox),
    acts.thaws_and_writes: lambda _, node: node.is_frozen and not node.is_cut and is_about_to_write(node),
    acts.is_connected_again: lambda _, node: node.is_cut,
    acts.starts_again: lambda _, node: node.is_down,
    acts.runner_is_ready: lambda _, node: is_runner_asked_for(node),
    acts.answer_arrives: lambda _, node: node.op is not None and node.op.fate == "slow" and not node.is_cut,
    acts.read_is_answered: lambda _, node: node.reading is not None and is_awake(node),
    acts.stuck_runner_dies: lambda _, node: node.is_stuck,
    acts.ticket_expires: is_ticket_dead,
}
FAULTS: Final[dict[Callable[[World, Node], None], OfNode]] = {
    acts.supervisor_is_killed: lambda _, node: not node.is_down,
    acts.guard_is_killed: lambda _, node: not node.is_down and not node.is_guard_dead,
    acts.supervisor_is_frozen: lambda _, node: is_awake(node),
    acts.connection_is_cut: lambda _, node: not node.is_cut and not node.is_down,
    acts.runner_crashes: lambda _, node: node.runner in {"in", "leaving"} or (node.runner == "out" and is_awake(node)),
    acts.runner_gets_stuck: lambda _, node: node.runner == "dying" and node.is_user and not node.is_stuck,
    acts.next_event_is_lost_for: lambda _, node: is_awake(node) and not node.is_cut and not node.is_deaf,
    acts.next_read_is_slow_for: lambda _, node: (
        is_awake(node) and not node.is_cut and not node.is_slow_reader and node.reading is None
    ),
    acts.answer_is_lost: is_sent,
    acts.answer_tarries: is_sent,
    acts.write_is_late: is_sent,
    acts.answer_about_job_is_lost: lambda world, node: is_writing_job(world, node) and is_fresh_write(world, node),
    acts.write_of_job_is_late: lambda world, node: is_writing_job(world, node) and is_fresh_write(world, node),
}


def is_fresh_write(world: World, node: Node) -> bool:
    """Whether what a worker tries to write for a job could be stored."""
    hand = node.hand
    return (
        hand is not None
        and hand.revision == world.jobs[hand.job].revision
        and (hand.record is None or not hand.record.state.is_terminal)
    )


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
        if job.owner and not is_in_flight(world, number):
            yield Step("job_is_delivered_again", number)


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
        if is_in_flight(world, number):
            yield Step("job_is_delivered_twice", number)


def is_in_flight(world: World, number: int) -> bool:
    """Whether the worker that has a job tells the others so."""
    owner = world.jobs[number].owner
    return any(
        node.lease.me.boot == owner
        and node.hand is not None
        and node.hand.job == number
        and is_awake(node)
        and not node.is_cut
        for node in world.nodes.values()
    )


def orders(step: Step, after: World) -> Iterator[Step]:
    """The same step, received in each other order of those for whom that makes a difference."""
    reported = "".join(sorted(after.asked))
    for order in permutations(reported):
        if (turn := "".join(order)) != reported:
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
    "delay": frozenset({"next_read_is_slow_for", "answer_tarries", "write_is_late", "write_of_job_is_late"}),
    "clock": frozenset({"server_clock_leaps_ahead", "server_clock_falls_back"}),
    "stream": frozenset({"stream_is_lost"}),
    "queue": frozenset({"job_is_delivered_twice"}),
}
"""Of faults, for explorations of more of a few kinds than all kinds allow."""
FAULT_NAMES: Final = frozenset[str]().union(*KINDS.values())


def faults_of(kinds: str) -> frozenset[str]:
    """The faults of some kinds, which commas part."""
    return frozenset[str]().union(*(KINDS[kind] for kind in kinds.split(",")))


assert {act.__name__ for act in FAULTS} < FAULT_NAMES, "a fault is of no kind"
OF_WHAT_IS_UNDER_WAY: Final = frozenset(
    {
        "answer_is_lost",
        "answer_tarries",
        "write_is_late",
        "answer_about_job_is_lost",
        "write_of_job_is_late",
        "runner_gets_stuck",
        "old_runner_gets_stuck",
    }
)
"""Faults that there can be only before what is prompt has come."""
_ACTS: Final[dict[str, Callable[[World, Any], None]]] = {
    act.__name__: cast("Callable[[World, Any], None]", act)
    for act in (
        *PROMPT,
        *SLOW,
        *FAULTS,
        acts.old_runner_dies,
        acts.record_expires,
        acts.stuck_old_runner_dies,
        acts.late_write_arrives,
        acts.overdue_record_expires,
        acts.job_is_delivered_again,
        acts.old_runner_gets_stuck,
        acts.server_clock_leaps_ahead,
        acts.server_clock_falls_back,
        acts.stream_is_lost,
        acts.job_is_delivered_twice,
        acts.time_passes,
    )
}
