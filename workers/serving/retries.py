"""What becomes of jobs whose run failed, alone. Pure: the error and the record in, a verdict out.

Only what the job itself did is a strike: a dead runner, memory used up or a run over its time while it
ran **alone**; a batch that fails is first run again in parts (:mod:`workers.serving.execution`), so nobody is
blamed for a neighbour. Three strikes are poison. Our own outages (a lost lease, NATS away, a drain, a
killed worker) never count. A version that cannot be loaded is no poison, but waiting for it must end; for
one that is too large it is not even begun.
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
from workers.serving.modelcache import DoesNotFit

MAX_DELAY_S: Final = 60.0
MAX_STRIKES: Final = 3
"""Runners one job may take down. A model's ``max_delivery`` may allow fewer."""


class Fate(Enum):
    """fail: terminal. retry: back to the queue."""

    FAIL = "fail"
    RETRY = "retry"


class Verdict(NamedTuple):
    """What to do with a job.

    delay_s: before the next attempt. is_strike: it counts against the job. is_dead_letter: keep
    the job itself in ``DLQ`` for a person to look at. is_poison: nobody shall run this input for a while.
    """

    fate: Fate
    delay_s: float = 0.0
    is_strike: bool = False
    is_dead_letter: bool = False
    is_poison: bool = False


def judge(error: SignalboxError, *, crashes: int, max_delivery: int) -> Verdict:
    """The verdict on a job that ran alone and ended with ``error``.

    crashes: strikes the job already has. max_delivery: the model's limit; 0 = none but ours.
    """
    if isinstance(error, DoesNotFit):
        return Verdict(Fate.FAIL)
    if isinstance(error, RunnerCrashed | OutOfMemory):
        strikes = min(MAX_STRIKES, max_delivery or MAX_STRIKES)
        return _strike(crashes, strikes, is_poison=True)
    if isinstance(error, DeadlineExceeded):  # it would only take as long again
        return Verdict(Fate.FAIL, is_strike=True, is_dead_letter=True)
    if isinstance(error, ModelError | InvalidRequest | InputLost):
        return Verdict(Fate.FAIL)
    if error.is_retryable and not isinstance(error, NotServing):
        return Verdict(Fate.RETRY, delay_s=1.0)
    return _strike(crashes, max_delivery, is_poison=False)


def _strike(crashes: int, limit: int, *, is_poison: bool) -> Verdict:
    if limit and crashes + 1 >= limit:
        return Verdict(Fate.FAIL, is_strike=True, is_dead_letter=True, is_poison=is_poison)
    return Verdict(Fate.RETRY, delay_s=min(MAX_DELAY_S, 2.0**crashes), is_strike=True)
