"""The kernel's lock, the guard that has it, and the runner that goes in and out under it."""

from collections.abc import Iterator

from verification.protocol.state import State, Violation, Worker, put

# -- what a supervisor asks for --------------------------------------------------------------------------


def watches(state: State, number: int) -> Iterator[State]:
    """Wait for the flock of another holder, as a proof of its death."""
    worker = state.workers[number]
    is_ready = worker.is_awake and worker.runner == "out"
    if is_ready and not worker.held and not worker.op and worker.flock == "none":
        yield locking(state, number)


def steps_back(state: State, number: int) -> Iterator[State]:
    """The worker got the flock before the new holder did."""
    worker = state.workers[number]
    is_kept = any(other.keeps for other in state.workers)
    if worker.is_able and not worker.held and not worker.op and worker.flock == "held" and is_kept:
        yield given_back(state, number)


def holder_locks(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.is_awake and worker.held and not worker.held.is_releasing and worker.flock == "none":
        yield locking(state, number)


def locking(state: State, number: int) -> State:
    """Ask the guard for the flock, unless that has been done."""
    worker = state.workers[number]
    if worker.flock != "none":
        return state
    guard = worker.guard
    if guard == "idle":
        guard = "locked" if state.is_flock_free else "waiting"
    return put(state, number, flock="asked", guard=guard)


def given_back(state: State, number: int) -> State:
    """Unlock where no runner has entered, else leave."""
    worker = state.workers[number]
    if worker.flock not in {"asked", "held"}:
        return state
    after = put(state, number, flock="returning", place="out")
    return ended(after, number, is_asked=worker.place != "out")


def fenced(state: State, number: int) -> State:
    if state.workers[number].flock not in {"asked", "held"}:
        return put(state, number, place="out")
    return ended(put(state, number, flock="returning", place="out"), number)


# -- what the guard and the kernel do --------------------------------------------------------------------


def ended(state: State, number: int, *, is_asked: bool = False) -> State:
    """Give the flock back: at once where no runner has entered, else when the runner is dead, or has left if asked."""
    worker = state.workers[number]
    if worker.guard not in {"waiting", "locked"} or worker.runner in {"leaving", "dying"}:
        return state
    if not worker.is_used or worker.runner == "none":
        return put(state, number, guard="idle", is_used=False)
    # Also a new runner that was not let in yet: it shares the description of one that was.
    return put(state, number, runner="leaving" if is_asked and worker.runner == "in" else "dying")


def flock_comes_free(state: State, number: int) -> Iterator[State]:
    if state.workers[number].guard == "waiting" and state.is_flock_free:
        yield put(state, number, guard="locked")


def hold_runs_out(state: State, number: int) -> Iterator[State]:
    """No runner has entered, and the supervisor sends nothing more."""
    worker = state.workers[number]
    if worker.guard == "locked" and not worker.is_used and worker.is_silent:
        yield put(state, number, guard="idle")


def deadline_passes(state: State, number: int) -> Iterator[State]:
    """The guard ends the runner whatever its supervisor does."""
    worker = state.workers[number]
    if worker.runner == "leaving":
        if worker.is_stuck:
            yield put(state, number, runner="dying")
    elif worker.is_used and worker.runner != "dying" and not worker.keeps:
        yield ended(state, number)


def runner_leaves(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.runner == "leaving" and not worker.is_stuck:
        yield put(state, number, runner="out", guard="idle", is_used=False)


def runner_dies(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.runner == "dying" and not worker.is_stuck:
        yield put(state, number, runner="none", guard="idle", is_used=False)


def stuck_runner_dies(state: State, number: int) -> Iterator[State]:
    if state.workers[number].is_stuck:
        yield put(state, number, runner="none", is_stuck=False, guard="idle", is_used=False)


def old_runner_dies(state: State) -> Iterator[State]:
    if state.old != "none" and not state.is_old_stuck:
        yield state._replace(old="none")


def stuck_old_runner_dies(state: State) -> Iterator[State]:
    if state.is_old_stuck:
        yield state._replace(old="none", is_old_stuck=False)


def runner_is_spawned(state: State, number: int) -> Iterator[State]:
    """Asked for when the death of the last one was heard of; so it may come to a frozen process."""
    worker = state.workers[number]
    is_heard = worker.place == "out" and not is_running(worker)
    if worker.is_up and worker.guard != "none" and worker.runner == "none" and is_heard:
        yield put(state, number, runner="out")


# -- what a supervisor hears of its guard ----------------------------------------------------------------


def hears_of_the_flock(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if not worker.is_awake or worker.guard in {"none", "waiting"}:
        return
    if worker.guard == "locked":
        if worker.flock == "asked":
            yield raised(put(state, number, flock="held"), number)
    elif worker.flock == "returning":
        yield put(state, number, flock="none")
    elif worker.flock != "none":  # its guard gave it back by itself: the lease is over too
        yield put(stay_ended(state, number), number, flock="none", place="out", hand=())


def raised(state: State, number: int) -> State:
    """The lock file remembers a token that is not below ours: go on above it, and say so in the record first."""
    worker = state.workers[number]
    if worker.held and worker.flock == "held" and worker.held.token <= state.floor:
        held = worker.held._replace(token=state.floor + 1, is_written=False)
        return put(state, number, held=held)
    return state


def enters(state: State, number: int) -> Iterator[State]:
    """With lease and flock, as the supervisor believes; its guard looks whether it has the flock."""
    worker = state.workers[number]
    held = worker.held
    if not worker.is_awake or not held or not held.is_written or held.is_releasing:
        return
    if worker.flock != "held" or worker.place != "out" or worker.runner != "out":
        return
    after = put(state, number, place="entering")
    if worker.guard == "locked":
        if held.token <= state.floor and not worker.is_used:  # it may come again in its stay
            raise Violation(f"token {held.token} enters after {state.floor}")
        after = put(after, number, runner="in", is_used=True)
        after = after._replace(floor=max(state.floor, held.token))
    yield after


def hears_that_it_is_inside(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if not worker.is_awake or worker.place != "entering" or worker.runner != "in":
        return
    if worker.held and not worker.held.is_releasing:
        yield put(state, number, place="in", is_gained=True)
    else:
        yield fenced(state, number)


def hears_of_the_runner(state: State, number: int) -> Iterator[State]:
    """The supervisor learns that the runner is dead."""
    worker = state.workers[number]
    if worker.is_awake and worker.guard != "none" and worker.runner == "none":
        if worker.hand and is_running(worker):
            hand = worker.hand._replace(phase="requeue")
            yield put(state, number, place="out", hand=hand)
        elif worker.place != "out":
            yield put(state, number, place="out")


def is_running(worker: Worker) -> bool:
    """Whether the supervisor believes that a job is in its runner."""
    return worker.hand.phase == "running" if worker.hand else False


def hears_of_its_guard(state: State, number: int) -> Iterator[State]:
    """It is dead, and another is started."""
    worker = state.workers[number]
    if worker.is_awake and worker.guard == "none":
        hand = () if worker.held else worker.hand
        after = stay_ended(state, number)
        yield put(after, number, guard="idle", flock="none", place="out", hand=hand)


def stay_ended(state: State, number: int) -> State:
    """As its supervisor sees it."""
    return put(state, number, held=(), is_gained=False, is_deaf=False)
