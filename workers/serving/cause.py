"""Decides what caused it where the run of a part of a batch failed as a whole. Pure: values in, decision out.

Only a job that ran alone, beside no load and in a runner that nothing else ended is judged by its error
(:mod:`workers.serving.retries`). All others run again: in halves where they used the memory up, each job alone where
they took the runner down (a restart is dearer than a run) or where the model refused all of them, and as they were
where it was the fault of none of them; that a few times, then they go back to the queue.
"""

from enum import Enum
from typing import Final, NamedTuple

from signalbox.program.errors import (
    Bug,
    DeadlineExceeded,
    InputLost,
    InvalidRequest,
    ModelError,
    NotFound,
    OutOfMemory,
    RunnerCrashed,
    SignalboxError,
    Unavailable,
)
from workers.residency.cache import DoesNotFit
from workers.runner.wire import RunnerLost

MAX_TRIES: Final = 5
"""Times a batch is run again because its version was not loaded after all, or another one took the runner down."""


class Again(Enum):
    """How the jobs of a part run again: not at all, as before, in two halves, each by itself, or each alone.

    apart: by itself, because the runner refused all. alone: by itself, and in no batch after that.
    """

    NO = "no"
    SAME = "same"
    HALVES = "halves"
    APART = "apart"
    ALONE = "alone"


class Evidence(NamedTuple):
    """What is known of a run that failed.

    jobs: how many ran together. is_beside_load: a version was being loaded meanwhile. is_ended_by_us: this worker has
    ended the runner that they ran in. tries: runs of the batch before that were no job's fault.
    """

    jobs: int
    is_beside_load: bool = False
    is_ended_by_us: bool = False
    tries: int = 0


class Decision(NamedTuple):
    """What is done with the jobs of the part.

    outcome: of each of them, where they do not run again. is_suspect: until the batch has ended no load begins beside
    it. is_dead: the runner has to be started again first. is_too_many: so many rows do not fit the memory. is_try: the
    run counts as one of its tries.
    """

    again: Again = Again.NO
    outcome: SignalboxError | None = None
    is_suspect: bool = False
    is_dead: bool = False
    is_too_many: bool = False
    is_try: bool = False


def is_cause(error: SignalboxError, evidence: Evidence) -> bool:
    """Whether this run, or this load, ended the runner.

    It did not where another did, or this worker has, or where a load beside it may have taken the time.
    """
    if isinstance(error, DeadlineExceeded) and evidence.is_beside_load:
        return False
    return not isinstance(error, RunnerLost) and not evidence.is_ended_by_us


def decide(error: SignalboxError, evidence: Evidence) -> Decision:
    """Decide about the jobs of a part whose run ended with ``error``."""
    match error:
        case NotFound():  # not loaded after all: the next try loads it
            return _run_again(evidence, Bug(str(error)))
        case RunnerCrashed() | DeadlineExceeded():
            return _after_death(error, evidence)
        case DoesNotFit():
            return Decision(outcome=error)
        case OutOfMemory():
            return _after_full(error, evidence)
        case ModelError() | InvalidRequest() | InputLost() if evidence.jobs > 1:
            return Decision(Again.APART)  # every job, or the runner would have named those it refused
        case _:
            return Decision(outcome=error)


def _after_death(error: SignalboxError, evidence: Evidence) -> Decision:
    """The runner died under the part: a lone culprit is judged, suspects run alone, others as before."""
    if not is_cause(error, evidence):
        decision = _run_again(evidence, Unavailable("Others kept taking the runner down."))
        return decision._replace(is_suspect=True, is_dead=True)
    if evidence.jobs == 1:
        return Decision(outcome=error, is_dead=True)
    return Decision(Again.ALONE, is_suspect=True, is_dead=True)


def _after_full(error: OutOfMemory, evidence: Evidence) -> Decision:
    """The part used the memory up: a lone culprit is judged, unless a load may have taken some of it."""
    is_too_many = not evidence.is_beside_load
    if evidence.jobs > 1:
        return Decision(Again.HALVES, is_too_many=is_too_many)
    if evidence.is_beside_load:
        decision = _run_again(evidence, Unavailable("A version was loaded beside the job."))
        return decision._replace(is_suspect=True)
    return Decision(outcome=error, is_too_many=is_too_many)


def _run_again(evidence: Evidence, at_last: SignalboxError) -> Decision:
    """Run as before, a few times; then ``at_last``."""
    if evidence.tries + 1 < MAX_TRIES:
        return Decision(Again.SAME, is_try=True)
    return Decision(outcome=at_last, is_try=True)
