"""Whether the protocol is that of the production machines: each state that ``verification.scope`` reaches must be its.

The two are compared by what can be seen of a state: which workers are up, frozen or cut off, which guard has the flock
or waits for it, where each runner is, which worker the record names, what each supervisor believes and which job it has
in flight, and how far the jobs are. Numbers are left out: the scope counts ticks and revisions, the protocol has none.
Its steps come in any order here.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from signalbox.wire.messages import State as JobState
from verification.graph import told_path
from verification.protocol.search import Search
from verification.protocol.state import State, Worker, start
from verification.protocol.steps import Explored, Step
from verification.scope import explore, nodes, steps
from verification.scope.world import World
from workers.lease.machine import HELD

View = tuple[Any, ...]
STAGES: Final = {JobState.RUNNING: "running", JobState.QUEUED: "queued", JobState.SUCCEEDED: "done"}
ALSO: Final = {"delay": frozenset({"cut"}), "loss": frozenset({"cut"})}
"""What a kind of the scope's faults may look like too: a heartbeat's lost answer is a connection cut for a while."""


@dataclass
class Compared:
    """modelled: views of the protocol; found: of the production machines. strange: ways to those only they have."""

    modelled: int
    found: int = 0
    strange: list[list[steps.Step]] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.found:,} views of the production machines, {self.modelled:,} of the protocol"
        if not self.strange:
            return f"{told}; it has all of theirs"
        return told_path(f"{told}; it lacks {len(self.strange):,} of theirs", self.strange[0])


def compare(machines: nodes.Machines, *, workers: int, jobs: int, faults: int, kinds: frozenset[str]) -> Compared:
    """Explore both, in any order."""
    known = views_of_protocol(workers, jobs, faults, kinds)
    found = Compared(len(known))
    search = Mirrored(World(machines, workers, jobs), faults, steps.faults_of(",".join(kinds)), 0)
    explored = search.run()
    assert not explored.broken, str(explored)
    found.found = len(search.seen)
    for view, number in search.seen.items():
        if view not in known:
            found.strange.append(search.graph.path(number))
    return found


def views_of_protocol(workers: int, jobs: int, faults: int, kinds: frozenset[str]) -> set[View]:
    """What can be seen of its states, in any order."""
    also = frozenset[str]().union(*(ALSO.get(kind, frozenset()) for kind in kinds))
    search = Recorded(Explored.of(kinds | also, is_at_rest=False), faults)
    found = search.run(start(workers, jobs))
    assert not found.broken, str(found)
    return search.seen


class Recorded(Search):
    """Keeps what could be seen of each state of the protocol."""

    def __init__(self, explored: Explored, faults: int) -> None:
        super().__init__(explored, faults)
        self.seen: set[View] = set()

    def meet(self, key: bytes, state: State, parent: int, step: Step, faults: int) -> int:
        self.seen.add(view_of_protocol(state))
        return super().meet(key, state, parent, step, faults)


class Mirrored(explore.Search):
    """Keeps what could be seen of each state of the production machines, until all jobs have ended."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: dict[View, int] = {}

    def meet(self, mark: bytes, world: World, parent: int, step: steps.Step) -> int:
        number = super().meet(mark, world, parent, step)
        if not world.is_done:
            self.seen.setdefault(view_of_production(world), number)
        return number


# -- what can be seen ------------------------------------------------------------------------------------


def view_of_protocol(state: State) -> View:
    jobs = sorted((job.stage, job.is_over) for job in state.jobs)
    return state.record, state.old, tuple(jobs), tuple(sorted(map(_view_of_worker, state.workers)))


def _view_of_worker(worker: Worker) -> View:
    return (
        worker.is_up,
        worker.is_frozen,
        worker.is_cut,
        worker.guard,
        worker.runner,
        worker.owns,
        worker.held != (),
        worker.held.is_releasing if worker.held else False,
        worker.flock,
        worker.place,
        worker.hand.phase if worker.hand else "",
    )


def view_of_production(world: World) -> View:
    workers = tuple(sorted(_view_of_node(world, node) for node in world.nodes.values()))
    stages = [STAGES[job.record.state] if job.record else "new" for job in world.jobs]
    jobs = sorted(zip(stages, (job.is_over for job in world.jobs), strict=True))
    old = ["in" if one.is_user else "out" for one in world.old if one.is_holder]
    return _view_of_record(world), old[0] if old else "none", tuple(jobs), workers


def _view_of_record(world: World) -> str:
    if world.record is None or world.record.state != HELD:
        return "none" if world.record is None else "free"
    return "held" if any(_owns(world, node) for node in world.nodes.values()) else "ghost"


def _owns(world: World, node: nodes.Node) -> bool:
    record = world.record
    is_named = record is not None and (record.state, record.boot) == (HELD, node.lease.me.boot)
    return is_named and not node.is_down


def _view_of_node(world: World, node: nodes.Node) -> View:
    lease, is_down = node.lease, node.is_down
    return (
        not is_down,
        node.is_frozen,
        node.is_cut and not is_down,
        _view_of_guard(world, node),
        "none" if is_down else node.runner,
        _owns(world, node),
        lease.held is not None,
        lease.held is not None and lease.held.is_releasing,
        lease.flock.value,
        lease.place.value,
        node.hand.phase if node.hand else "",
    )


def _view_of_guard(world: World, node: nodes.Node) -> str:
    if node.is_guard_dead or node.is_down:
        return "none"
    if world.flocks.get(node.host) == node.name:
        return "locked"
    return "waiting" if node.guard.is_waiting else "idle"
