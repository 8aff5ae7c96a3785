"""Decides what is done with a job whose run failed while it ran alone. Pure: error and record in, decision out.

Only what the job itself did is a strike: a dead runner, memory used up or a run over its time while it
ran **alone**; a batch that fails is first run again in parts (:mod:`workers.serving.execution`), so that
no job is blamed for another of its batch. Three strikes are poison. Outages of Signalbox (a lost lease, NATS away,
a drain, a killed worker) never count. A version that cannot be loaded is no poison, but the wait for it must end;
for one that is too large it is not begun.
"""

from enum import Enum
from typing import Final, NamedTuple

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

MAX_DELAY_S: Final = 60.0
MAX_STRIKES: Final = 3
"""Runners one job may take down. A model's ``max_delivery`` may allow fewer."""


class Action(Enum):
    """fail: the job ends. retry: it goes back to the queue."""

    FAIL = "fail"
    RETRY = "retry"


class Decision(NamedTuple):
    """What to do with a job.

    delay_s: before the next attempt. is_strike: it counts against the job. is_dead_letter: keep
    the job itself in ``DLQ`` for a person to look at. is_poison: this input is not run for a while.
    """

    action: Action
    delay_s: float = 0.0
    is_strike: bool = False
    is_dead_letter: bool = False
    is_poison: bool = False


def judge(error: SignalboxError, *, crashes: int, max_delivery: int) -> Decision:
    """Decide about a job that ran alone and ended with ``error``.

    crashes: strikes the job already has. max_delivery: the model's limit; 0 = only MAX_STRIKES.
    """
    if isinstance(error, DoesNotFit):
        return Decision(Action.FAIL)
    if isinstance(error, RunnerCrashed | OutOfMemory):
        strikes = min(MAX_STRIKES, max_delivery or MAX_STRIKES)
        return _strike(crashes, strikes, is_poison=True)
    if isinstance(error, DeadlineExceeded):  # it would only take as long again
        return Decision(Action.FAIL, is_strike=True, is_dead_letter=True)
    if isinstance(error, ModelError | InvalidRequest | InputLost):
        return Decision(Action.FAIL)
    if error.is_retryable and not isinstance(error, NotServing):
        return Decision(Action.RETRY, delay_s=1.0)
    return _strike(crashes, max_delivery, is_poison=False)


def _strike(crashes: int, limit: int, *, is_poison: bool) -> Decision:
    if limit and crashes + 1 >= limit:
        return Decision(Action.FAIL, is_strike=True, is_dead_letter=True, is_poison=is_poison)
    return Decision(Action.RETRY, delay_s=min(MAX_DELAY_S, 2.0**crashes), is_strike=True)
