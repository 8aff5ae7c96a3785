"""The lease record in NATS and the supervisors' steps on it, by compare-and-set."""

from collections.abc import Iterator

from verification.protocol import flock
from verification.protocol.state import HeldLease, State, put, tokens


def stored(state: State, record: str, owner: int = -1) -> State:
    """Write a new revision: a write that expects an earlier one is refused, now or when it arrives."""
    workers = tuple(
        worker._replace(
            owns=number == owner,
            late=(),
            op="" if worker.op in {"acquire", "release"} and number != owner else worker.op,
        )
        for number, worker in enumerate(state.workers)
    )
    return state._replace(record=record, late=(), workers=workers)


# -- taking it -------------------------------------------------------------------------------------------


def acquires(state: State, number: int) -> Iterator[State]:
    """Acquire a lease that is free or its own, or with the flock as a proof that its holder is dead."""
    worker = state.workers[number]
    if not worker.is_able or worker.held or worker.op or worker.runner == "none":
        return
    is_open = state.record in {"none", "free"} or worker.owns
    if is_open or (worker.flock == "held" and not any(other.keeps for other in state.workers)):
        yield put(flock.locking(state, number), number, op="acquire")


def acquire_is_answered(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.op == "acquire" and not worker.is_cut:
        for after in acquire_is_stored(state, number):
            yield after if worker.is_frozen else acquired(after, number)


def acquire_is_stored(state: State, number: int) -> Iterator[State]:
    for token in new_tokens(state):
        yield put(stored(state, "held", number), number, op="acquired", op_token=token)


def new_tokens(state: State) -> Iterator[int]:
    """A revision is greater than all before, but in a stream that was made anew."""
    yield max(tokens(state)) + 1
    if state.is_wiped and state.floor:
        yield 1  # where below the lock file's does not matter


def acquired(state: State, number: int) -> State:
    held = HeldLease(state.workers[number].op_token)
    return flock.raised(put(state, number, op="", op_token=0, held=held), number)


def heartbeat_says_the_token(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if not worker.is_able or not worker.owns or worker.op:
        return
    if worker.held and not worker.held.is_written:
        held = worker.held._replace(is_written=True)
        yield put(stored(state, "held", number), number, held=held)


# -- giving it up ----------------------------------------------------------------------------------------


def wants_to_release(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.is_awake and worker.held and not worker.held.is_releasing and not worker.hand:
        yield put(state, number, held=worker.held._replace(is_releasing=True))


def releases(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if not worker.is_awake or not worker.held or not worker.held.is_releasing or worker.op:
        return
    if worker.is_cut:  # the device need not wait until NATS can be told
        if worker.flock in {"asked", "held"}:
            yield flock.given_back(state, number)
    elif worker.owns:
        yield put(state, number, op="release")


def release_is_answered(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.op == "release" and not worker.is_cut:
        after = put(stored(state, "free", number), number, op="released", owns=False)
        yield after if worker.is_frozen else released(after, number)


def released(state: State, number: int) -> State:
    after = put(flock.stay_ended(state, number), number, op="")
    return flock.given_back(after, number)


def hears_of_another_holder(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.is_able and worker.held and not (worker.owns or worker.is_deaf):
        yield lost(state, number)
        if worker.held.is_releasing:
            yield released(state, number)  # of the next one, before the answer


def loses(state: State, number: int) -> Iterator[State]:
    """The worker gives the lease up after too long without an answer, or is refused for good."""
    worker = state.workers[number]
    if worker.is_awake and worker.held and (worker.is_cut or worker.is_deaf):
        yield lost(state, number)


def lost(state: State, number: int) -> State:
    """End the runner without grace: the present holder may already wait for the flock."""
    worker = state.workers[number]
    after = put(flock.stay_ended(state, number), number, hand=())
    return flock.fenced(after, number) if worker.place != "out" else flock.given_back(after, number)


# -- answers that do not come in time --------------------------------------------------------------------


def answer_comes_late(state: State, number: int) -> Iterator[State]:
    """Or the supervisor stops waiting for it."""
    worker = state.workers[number]
    if worker.is_awake and worker.op in {"acquired", "released"}:
        yield given_up(state, number)
        if not worker.is_cut:
            answered = acquired if worker.op == "acquired" else released
            yield answered(state, number)


def write_fails(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.op in {"acquire", "release"} and worker.is_cut and worker.is_awake:
        yield given_up(state, number)


def given_up(state: State, number: int) -> State:
    """A worker that reaches NATS needs the flock."""
    return flock.given_back(put(state, number, op="", op_token=0), number)


def late_write_arrives(state: State, number: int) -> Iterator[State]:
    for what in state.workers[number].late:
        yield stored(state, "held", number) if what == "acquire" else stored(state, "free")


def write_of_the_dead_arrives(state: State) -> Iterator[State]:
    for what in state.late:
        yield stored(state, "ghost" if what == "acquire" else "free")


def record_expires(state: State) -> Iterator[State]:
    """The record lapses where no heartbeat renews it, by any clock also too early."""
    if state.record == "ghost" or any(worker.owns and not worker.keeps for worker in state.workers):
        yield stored(state, "none")
