"""A state of the protocol of lease, guard and flock: the facts, and what each process believes. It has no time.

All facts of a worker are in its ``Worker``, so that the order of the workers does not matter: two states that differ
only in the names of workers count as one. Only the order of tokens counts.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, Final, NamedTuple


class Violation(AssertionError):
    """A law is broken."""


class HeldLease(NamedTuple):
    """A stay as its holder sees it. is_written: its token stands in the record."""

    token: int
    is_written: bool = True
    is_releasing: bool = False


class Hand(NamedTuple):
    """A job in flight at a worker. phase: claim, running, commit, requeue. is_current: its record was not written
    since the worker read it."""

    job: int
    phase: str
    token: int
    is_current: bool = True


class Job(NamedTuple):
    """stage: new, running, queued, done. token: of its last attempt. is_out: it was delivered, and not again since.
    late: stages and tokens of writes to its record that may still arrive."""

    stage: str = "new"
    token: int = 0
    is_out: bool = False
    is_over: bool = False
    late: tuple[tuple[str, int], ...] = ()


class Worker(NamedTuple):
    """A supervisor, its guard and its runner.

    What is so: guard: none, idle, waiting, locked. runner: none, out, in, leaving, dying. is_used: a runner was let in
    since the flock was taken. owns: the record names it. late: its writes of the record that it knows nothing more of
    and that may still arrive.
    What the supervisor believes: flock: none, asked, held, returning. place: out, entering, in. held, hand: () = none.
    op: its write under way: acquire, release; acquired, released when it is stored and the answer tarries. is_deaf: it
    will not hear who takes its lease.
    """

    is_up: bool = True
    is_frozen: bool = False
    is_cut: bool = False
    is_deaf: bool = False
    guard: str = "idle"
    runner: str = "out"
    is_stuck: bool = False
    is_used: bool = False
    owns: bool = False
    late: tuple[str, ...] = ()
    flock: str = "none"
    place: str = "out"
    held: HeldLease | tuple[()] = ()
    is_gained: bool = False
    op: str = ""
    op_token: int = 0
    hand: Hand | tuple[()] = ()

    @property
    def is_awake(self) -> bool:
        return self.is_up and not self.is_frozen

    @property
    def is_able(self) -> bool:
        """Whether it can write to NATS."""
        return self.is_up and not self.is_frozen and not self.is_cut

    @property
    def is_silent(self) -> bool:
        """Whether its heartbeats reach no server."""
        return self.is_frozen or self.is_cut

    @property
    def keeps(self) -> bool:
        """Whether it looks after the record that names it."""
        return self.owns and bool(self.held) and not self.is_silent


class State(NamedTuple):
    """record: none, free, held (by a worker as it is now), ghost (held by a life that has ended). is_wiped: the stream
    was lost, so that the numbers which tokens are made of come again. floor: the highest token ever let in, which the
    lock file remembers. old: a runner whose guard is dead and that has the flock until it is dead too: none, out, in.
    late: writes of the dead that may still arrive.
    """

    record: str
    is_wiped: bool
    floor: int
    old: str
    is_old_stuck: bool
    late: tuple[str, ...]
    jobs: tuple[Job, ...]
    workers: tuple[Worker, ...]

    @property
    def is_done(self) -> bool:
        """All jobs have ended and left the queue."""
        return all(job.is_over for job in self.jobs)

    @property
    def is_flock_free(self) -> bool:
        return self.old == "none" and all(worker.guard != "locked" for worker in self.workers)


def start(workers: int, jobs: int) -> State:
    """The initial state: no lease, no flock, no job delivered."""
    return State("none", False, 0, "none", False, (), (Job(),) * jobs, (Worker(),) * workers)


def put(state: State, number: int, **changes: Any) -> State:
    """The state with one worker changed."""
    workers = list(state.workers)
    workers[number] = workers[number]._replace(**changes)
    return state._replace(workers=tuple(workers))


def put_job(state: State, number: int, **changes: Any) -> State:
    """The state with one job changed."""
    jobs = list(state.jobs)
    jobs[number] = jobs[number]._replace(**changes)
    return state._replace(jobs=tuple(jobs))


# -- which states are one --------------------------------------------------------------------------------

_APART: Final = 2
"""Between two ranks, so that another token can come between them."""


def canonical(state: State) -> State:
    """The representative of all states that differ only in names and in the distances of tokens."""
    known = tokens(state)
    if max(known) != (len(known) - 1) * _APART or any(token % _APART for token in known):
        state = _ranked(state, {token: at * _APART for at, token in enumerate(sorted(known))})
    return min(_orders(state))


def tokens(state: State) -> set[int]:
    """All tokens that any part of the state holds."""
    found = {0, state.floor}
    for job in state.jobs:
        found.add(job.token)
        found.update(token for _, token in job.late)
    for worker in state.workers:
        found.add(worker.op_token)
        if worker.held:
            found.add(worker.held.token)
        if worker.hand:
            found.add(worker.hand.token)
    return found


def _ranked(state: State, rank: dict[int, int]) -> State:
    jobs = tuple(
        job._replace(token=rank[job.token], late=tuple((what, rank[token]) for what, token in job.late))
        for job in state.jobs
    )
    workers = tuple(
        worker._replace(
            op_token=rank[worker.op_token],
            held=worker.held and worker.held._replace(token=rank[worker.held.token]),
            hand=worker.hand and worker.hand._replace(token=rank[worker.hand.token]),
        )
        for worker in state.workers
    )
    return state._replace(floor=rank[state.floor], jobs=jobs, workers=workers)


def _orders(state: State) -> Iterator[State]:
    """Workers sorted, and jobs in each order that sorts them."""
    wanted = tuple(sorted(state.jobs))
    for order in permutations(range(len(wanted))):
        if tuple(state.jobs[number] for number in order) == wanted:
            place = {number: at for at, number in enumerate(order)}
            workers = sorted(_renamed(worker, place) for worker in state.workers)
            yield state._replace(jobs=wanted, workers=tuple(workers))


def _renamed(worker: Worker, place: dict[int, int]) -> Worker:
    """With the jobs' new numbers."""
    if worker.hand:
        worker = worker._replace(hand=worker.hand._replace(job=place[worker.hand.job]))
    return worker
