"""The faults of the protocol; each function is one fault."""

from collections.abc import Iterator

from verification.protocol import flock, jobs, lease
from verification.protocol.state import State, Worker, put, put_job


def supervisor_is_killed(state: State, number: int) -> Iterator[State]:
    """The supervisor dies, then its guard and its runner; writes that it had sent may still arrive."""
    worker = state.workers[number]
    if not worker.is_up:
        return
    after = orphaned(state, number)
    late = {*state.late, *worker.late}
    if worker.op in {"acquire", "release"}:
        late.add(worker.op)
    after = after._replace(record="ghost" if worker.owns else state.record, late=tuple(sorted(late)))
    gone = Worker(is_up=False, guard="none", runner="none")
    yield put(after, number, **gone._asdict())


def guard_is_killed(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.is_up and worker.guard != "none":
        after = orphaned(state, number)
        yield put(after, number, guard="none", runner="none", is_stuck=False, is_used=False)


def orphaned(state: State, number: int) -> State:
    """The kernel kills the runner, and the flock is free when that is dead."""
    worker = state.workers[number]
    if worker.guard != "locked" or worker.runner == "none":
        return state
    old = "out" if worker.runner == "out" else "in"
    return state._replace(old=old, is_old_stuck=worker.is_stuck)


def runner_crashes(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.runner in {"in", "out"}:
        yield put(state, number, runner="none")
    elif worker.runner == "leaving":
        yield put(state, number, runner="none", guard="idle", is_used=False)


def runner_gets_stuck(state: State, number: int) -> Iterator[State]:
    """The runner is stuck in the kernel, where no signal reaches it."""
    worker = state.workers[number]
    if worker.runner in {"leaving", "dying"} and not worker.is_stuck:
        yield put(state, number, is_stuck=True)


def supervisor_is_frozen(state: State, number: int) -> Iterator[State]:
    if state.workers[number].is_awake:
        yield put(state, number, is_frozen=True)


def connection_is_cut(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.is_up and not worker.is_cut:
        yield put(state, number, is_cut=True)


def answer_tarries(state: State, number: int) -> Iterator[State]:
    """The answer to a write of the record is lost, perhaps the write too."""
    worker = state.workers[number]
    if worker.op == "acquire" and not worker.is_silent:
        yield from lease.acquire_is_stored(state, number)
    elif worker.op == "release" and not worker.is_silent:
        yield put(lease.stored(state, "free", number), number, op="released", owns=False)


def write_is_late(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if worker.op in {"acquire", "release"} and worker.is_able:
        late = tuple(sorted({*worker.late, worker.op}))
        yield put(lease.given_up(state, number), number, late=late)


def answer_about_job_is_lost(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    hand = worker.hand
    if not worker.is_able or not hand or hand.phase == "running" or not hand.is_current:
        return
    if state.jobs[hand.job].stage != "done":
        yield jobs.job_stored(state, hand.job, jobs.RECORD[hand.phase], hand.token)


def write_to_job_is_late(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    hand = worker.hand
    if not worker.is_able or not hand or hand.phase == "running" or not hand.is_current:
        return
    job = state.jobs[hand.job]
    if job.stage != "done":
        late = {*job.late, (jobs.RECORD[hand.phase], hand.token)}
        yield put_job(state, hand.job, late=tuple(sorted(late)))


def job_is_delivered_twice(state: State, number: int) -> Iterator[State]:
    """The queue is made anew, and delivers a job that is in flight."""
    hand = state.workers[number].hand
    if hand and state.jobs[hand.job].is_out:
        yield put_job(state, hand.job, is_out=False)


def word_is_lost(state: State, number: int) -> Iterator[State]:
    """The worker loses the event that another took its lease."""
    worker = state.workers[number]
    if worker.is_able and worker.held and not worker.is_deaf:
        yield put(state, number, is_deaf=True)


def record_is_gone(state: State) -> Iterator[State]:
    """The server's clock steps ahead."""
    if state.record in {"held", "ghost"}:
        yield lease.stored(state, "none")


def stream_is_lost(state: State) -> Iterator[State]:
    if not state.is_wiped:
        yield lease.stored(state, "none")._replace(is_wiped=True)


# -- how they end ----------------------------------------------------------------------------------------


def thaws(state: State, number: int) -> Iterator[State]:
    """A frozen worker continues with old beliefs; its own timer may be the first to correct them."""
    worker = state.workers[number]
    if worker.is_frozen:
        awake = put(state, number, is_frozen=False)
        yield awake
        yield from jobs.writes_job(awake, number)  # what it was about to
        late = lease.lost(awake, number)
        if worker.held:
            yield late
        if worker.guard == "idle" and worker.flock in {"asked", "held"}:
            # It asks for the flock again before it hears that its guard gave it back, and takes that for an answer.
            yield put(flock.locking(put(late, number, flock="none"), number), number, flock="none")


def is_connected_again(state: State, number: int) -> Iterator[State]:
    if state.workers[number].is_cut:
        yield put(state, number, is_cut=False)


def starts_again(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    if not worker.is_up:
        yield put(state, number, **Worker()._asdict())
