"""Steps of jobs: delivery once and again by a queue, writes by compare-and-set, removal after the end."""

from collections.abc import Iterator
from typing import Final

from verification.protocol.state import Hand, State, Violation, put, put_job

RECORD: Final = {"claim": "running", "commit": "done", "requeue": "queued"}
"""What a worker writes in each phase of a job."""


def pulls(state: State, number: int) -> Iterator[State]:
    """A holder without a job in flight pulls one."""
    worker = state.workers[number]
    if not worker.is_able or not worker.is_gained or worker.hand:
        return
    if not worker.held or worker.held.is_releasing:
        return
    for name, job in enumerate(state.jobs):
        if not job.is_over and not job.is_out:
            hand = Hand(name, "claim", worker.held.token)
            yield put_job(put(state, number, hand=hand), name, is_out=True)


def is_delivered_again(state: State) -> Iterator[State]:
    """Jobs that no worker attends to."""
    for name, job in enumerate(state.jobs):
        if job.is_out and not is_in_flight(state, name):
            yield put_job(state, name, is_out=False)


def is_in_flight(state: State, name: int) -> bool:
    """Whether a worker tells the others that it has the job."""
    return any(worker.hand and worker.hand.job == name and not worker.is_silent for worker in state.workers)


def run_ends(state: State, number: int) -> Iterator[State]:
    worker = state.workers[number]
    hand = worker.hand
    if not worker.is_awake or not hand or hand.phase != "running" or worker.runner != "in":
        return
    if worker.place == "in" and worker.held and worker.held.token == hand.token:
        yield put(state, number, hand=hand._replace(phase="commit"))


def writes_job(state: State, number: int) -> Iterator[State]:
    """The worker writes its claim, end or requeue; after a refusal it reads the record and decides."""
    worker = state.workers[number]
    hand = worker.hand
    if not worker.is_able or not hand or hand.phase == "running":
        return
    job = state.jobs[hand.job]
    if job.stage == "done":
        yield finished(state, number, hand)
    elif not hand.is_current:
        yield from resolved(state, number, hand)
    else:
        yield written(job_stored(state, hand.job, RECORD[hand.phase], hand.token), number, hand)


def job_stored(state: State, name: int, now: str, token: int) -> State:
    """Write a new revision of the record: every other worker has read an old one."""
    before = state.jobs[name]
    if before.stage == "done":
        raise Violation(f"a job that has ended is {now}")
    if token < before.token:
        raise Violation(f"token {token} writes over token {before.token}")
    workers = tuple(
        worker._replace(hand=worker.hand._replace(is_current=False))
        if worker.hand and worker.hand.job == name
        else worker
        for worker in state.workers
    )
    return put_job(state._replace(workers=workers), name, stage=now, token=token, late=())


def written(state: State, number: int, hand: Hand) -> State:
    """The worker learns that its write is stored."""
    if hand.phase == "commit":
        return finished(state, number, hand)
    if hand.phase == "claim":
        return put(state, number, hand=hand._replace(phase="running", is_current=True))
    after = put(state, number, hand=())
    return after if is_in_flight(after, hand.job) else put_job(after, hand.job, is_out=False)


def resolved(state: State, number: int, hand: Hand) -> Iterator[State]:
    """As ``Commits._resolve`` decides."""
    job = state.jobs[hand.job]
    if (job.stage, job.token) == (RECORD[hand.phase], hand.token):
        yield written(state, number, hand)
    is_older = job.stage != "running" or job.token < hand.token
    if hand.phase == "claim" and is_older:
        yield put(state, number, hand=hand._replace(is_current=True))
    else:
        yield put(state, number, hand=())


def finished(state: State, number: int, hand: Hand) -> State:
    """The job leaves the queue, also where another worker has it in flight."""
    if state.jobs[hand.job].stage != "done":
        raise Violation("a job is taken for ended that has not ended")
    return put_job(put(state, number, hand=()), hand.job, is_over=True, is_out=False, token=0)


def late_write_to_job_arrives(state: State) -> Iterator[State]:
    for name, job in enumerate(state.jobs):
        for now, token in job.late:
            yield job_stored(state, name, now, token)
