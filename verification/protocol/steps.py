"""The steps that may come next. No clock is read: an event that takes time may come now, later or never.

A process that is neither frozen nor cut off takes prompt steps at once. Steps are tried in two ways: at rest, where a
fault or a slow step comes only when no prompt step is left; and in every order.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from verification.protocol import faults, flock, jobs, lease
from verification.protocol.state import State, Violation, Worker

OfWorker = Callable[[State, int], Iterator[State]]
OfAll = Callable[[State], Iterator[State]]

ITS_OWN: Final[tuple[OfWorker, ...]] = (
    lease.heartbeat_says_the_token,
    lease.releases,
    lease.write_fails,
    flock.hears_of_the_flock,
    flock.enters,
    flock.hears_that_it_is_inside,
    flock.hears_of_the_runner,
    flock.hears_of_its_guard,
    flock.runner_is_spawned,
)
"""Prompt, with one outcome, and whether it may come stands in the worker alone."""
PROMPT: Final[tuple[OfWorker, ...]] = (
    lease.acquire_is_answered,
    lease.release_is_answered,
    lease.hears_of_another_holder,
    flock.steps_back,
    flock.holder_locks,
    flock.flock_comes_free,
    flock.runner_dies,
    jobs.pulls,
    jobs.writes_job,
    flock.runner_leaves,
    lease.acquires,
    flock.watches,
)
PROMPT_OF_ALL: Final[tuple[OfAll, ...]] = (flock.old_runner_dies,)
EARLY: Final[tuple[OfWorker, ...]] = (lease.wants_to_release,)
"""Steps that may come before a prompt one, and need not come at all."""
SLOW: Final[tuple[OfWorker, ...]] = (
    lease.loses,
    lease.answer_comes_late,
    lease.late_write_arrives,
    flock.hold_runs_out,
    flock.deadline_passes,
    flock.stuck_runner_dies,
    jobs.run_ends,
    faults.thaws,
    faults.is_connected_again,
    faults.starts_again,
)
SLOW_OF_ALL: Final[tuple[OfAll, ...]] = (
    lease.write_of_the_dead_arrives,
    lease.record_expires,
    flock.stuck_old_runner_dies,
    jobs.is_delivered_again,
    jobs.late_write_to_job_arrives,
)
KINDS: Final[dict[str, tuple[OfWorker, ...]]] = {
    "kill": (faults.supervisor_is_killed,),
    "guard": (faults.guard_is_killed,),
    "runner": (faults.runner_crashes, faults.runner_gets_stuck),
    "freeze": (faults.supervisor_is_frozen,),
    "cut": (faults.connection_is_cut,),
    "loss": (faults.word_is_lost, faults.answer_tarries, faults.answer_about_job_is_lost),
    "delay": (faults.answer_tarries, faults.write_is_late, faults.write_to_job_is_late),
    "queue": (faults.job_is_delivered_twice,),
}
KINDS_OF_ALL: Final[dict[str, tuple[OfAll, ...]]] = {
    "clock": (faults.record_is_gone,),
    "stream": (faults.stream_is_lost,),
}
ALL_KINDS: Final = frozenset({*KINDS, *KINDS_OF_ALL})
_UNDER_WAY: Final = frozenset(
    {
        faults.runner_gets_stuck,
        faults.answer_tarries,
        faults.write_is_late,
        faults.answer_about_job_is_lost,
        faults.write_to_job_is_late,
    }
)
"""Faults that are possible only before the prompt steps."""
_RACES: Final = frozenset(
    {flock.flock_comes_free, flock.watches, flock.holder_locks, lease.acquires, jobs.pulls, jobs.writes_job}
)
"""Of two that may do this, the second finds another world than the first: each is tried as the first. All else that is
prompt is done by one after the other."""


class Step(NamedTuple):
    """of: the place of a worker in the state before, -1 = of none."""

    name: str
    of: int = -1

    def __str__(self) -> str:
        told = self.name.replace("_", " ")
        return told if self.of < 0 else f"{told} (worker {self.of})"


class Explored(NamedTuple):
    """The kinds of faults, and whether faults and slow steps wait until no prompt step is left."""

    faults: tuple[OfWorker, ...]
    faults_of_all: tuple[OfAll, ...]
    is_at_rest: bool

    @classmethod
    def of(cls, kinds: frozenset[str], *, is_at_rest: bool = True) -> "Explored":
        """The faults of some kinds."""
        some = {act for kind in kinds for act in KINDS.get(kind, ())}
        of_all = {act for kind in kinds for act in KINDS_OF_ALL.get(kind, ())}
        return cls(tuple(sorted(some, key=_name)), tuple(sorted(of_all, key=_name)), is_at_rest)

    def after(self, state: State, *, may_fail: bool) -> Iterator[tuple[Step, bool, State]]:
        """Each step, whether it is a fault, and the state it leads to. Raises :class:`Violation`."""
        prompt = list(self._prompt(state))
        is_rest = not (self.is_at_rest and prompt)
        ordinary = chain(prompt, _each(state, EARLY))
        if is_rest:
            ordinary = chain(ordinary, _each(state, SLOW), _of_all(state, SLOW_OF_ALL))
        for step, after in ordinary:
            yield step, False, after
        if may_fail:
            some = (act for act in self.faults if is_rest or act in _UNDER_WAY)
            of_all = self.faults_of_all if is_rest else ()
            for step, after in chain(_each(state, some), _of_all(state, of_all)):
                yield step, True, after

    def _prompt(self, state: State) -> Iterator[tuple[Step, State]]:
        if not self.is_at_rest:
            yield from _each(state, ITS_OWN)
            yield from _each(state, PROMPT)
            yield from _of_all(state, PROMPT_OF_ALL)
            return
        for act in PROMPT:
            if found := list(_each(state, (act,))):
                first = found[0][0].of
                yield from (one for one in found if act in _RACES or one[0].of == first)
                return
        yield from _of_all(state, PROMPT_OF_ALL)


def _each(state: State, acts: Iterable[OfWorker]) -> Iterator[tuple[Step, State]]:
    for act in acts:
        for number in range(len(state.workers)):
            yield from _named(Step(act.__name__, number), act(state, number))


def _of_all(state: State, acts: Iterable[OfAll]) -> Iterator[tuple[Step, State]]:
    for act in acts:
        yield from _named(Step(act.__name__), act(state))


def _named(step: Step, states: Iterator[State]) -> Iterator[tuple[Step, State]]:
    try:
        for after in states:
            yield step, after
    except Violation as violation:
        raise Violation(f"{violation}, when {step}") from None


def _name(act: Callable[..., object]) -> str:
    return act.__name__


# -- what follows at once --------------------------------------------------------------------------------


def at_rest(state: State, quiet: set[Worker]) -> State:
    """The state after all steps that concern one worker only. quiet: workers known to have no such step."""
    number = 0
    while number < len(state.workers):
        worker = state.workers[number]
        after = None if worker in quiet else _its_own(state, number)
        if after is None:
            quiet.add(worker)
            number += 1
        else:
            check(after)
            state, number = after, 0
    return state


def _its_own(state: State, number: int) -> State | None:
    for act in ITS_OWN:
        for after in act(state, number):
            return after
    return None


def check(state: State) -> None:
    """S1: one runner uses the device."""
    users = sum(worker.runner in {"in", "leaving", "dying"} for worker in state.workers)
    if users + (state.old == "in") > 1:
        raise Violation("two runners use the device at once")
