"""Decides what is done with a job whose run failed while it ran alone. Pure: error and record in, decision out.

Only what the job itself did is a strike: a dead runner, memory used up or a run over its time while it
ran **alone**; a batch that fails is first run again in parts (:mod:`workers.serving.execution`), so that
no job gets a strike for another of its batch. Three strikes are poison. Outages of Signalbox (a lost lease, NATS away,
a drain, a killed worker) never count. A version that cannot be loaded is no poison, but the wait for it must end;
for one that is too large it is not begun.
"""

from enum import Enum
from typing import Final, NamedTuple

from signalbox.jobs.penalty import Penalty
from signalbox.program.errors import (
    DeadlineExceeded,
    InputLost,
    InvalidRequest,
    ModelError,
    NotServing,
    OutOfMemory,
    RunnerCrashed,
    SignalboxError,
)
from workers.residency.cache import DoesNotFit
from workers.residency.versions import VersionDropped

MAX_DELAY_S: Final = 60.0
MAX_STRIKES: Final = 3
"""Runners one job may take down. A model's ``max_delivery`` may allow fewer."""


class Action(Enum):
    """fail: the job ends. retry: it goes back to the queue."""

    FAIL = "fail"
    RETRY = "retry"


class Decision(NamedTuple):
    """What to do with a job.

    delay_s: before the next attempt. penalty: what the attempt counts as. is_dead_letter: keep
    the job itself in ``DLQ`` for a person to look at. is_poison: this input is not run for a while.
    """

    action: Action
    delay_s: float = 0.0
    penalty: Penalty = Penalty.NONE
    is_dead_letter: bool = False
    is_poison: bool = False


def judge(error: SignalboxError, *, strikes: int, failures: int, max_delivery: int) -> Decision:
    """Decide about a job that ran alone and ended with ``error``.

    strikes, failures: what its earlier attempts counted as. max_delivery: the model's limit of both together; 0 = only
    MAX_STRIKES.
    """
    counted = strikes + failures
    is_last = 0 < max_delivery <= counted + 1
    if isinstance(error, DoesNotFit | VersionDropped):
        return Decision(Action.FAIL)
    if isinstance(error, RunnerCrashed | OutOfMemory):
        is_poison = strikes + 1 >= min(MAX_STRIKES, max_delivery or MAX_STRIKES)
        return _counted(Penalty.STRIKE, counted, is_last=is_last or is_poison, is_poison=is_poison)
    if isinstance(error, DeadlineExceeded):  # it would only take as long again
        return Decision(Action.FAIL, penalty=Penalty.STRIKE, is_dead_letter=True)
    if isinstance(error, ModelError | InvalidRequest | InputLost):
        return Decision(Action.FAIL)
    if error.is_retryable and not isinstance(error, NotServing):
        return Decision(Action.RETRY, delay_s=1.0)
    return _counted(Penalty.FAILURE, counted, is_last=is_last)


def _counted(penalty: Penalty, before: int, *, is_last: bool, is_poison: bool = False) -> Decision:
    """before: attempts that were counted already."""
    if is_last:
        return Decision(Action.FAIL, penalty=penalty, is_dead_letter=True, is_poison=is_poison)
    return Decision(Action.RETRY, delay_s=min(MAX_DELAY_S, 2.0**before), penalty=penalty)
