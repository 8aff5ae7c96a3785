"""When a delivery that failed is tried again, and what an answer means for it. Rules only, nothing is called."""

import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

GONE: Final = 410
"""The receiver wants nothing more, ever."""
_JITTER: Final = 0.1


class Outcome(StrEnum):
    """How one attempt ended."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    GONE = "gone"


class Decision(NamedTuple):
    """What follows an attempt. delay_s: until the next one, 0 = there is none."""

    outcome: Outcome
    delay_s: float = 0.0


def number(times: int, age_s: float, retries_s: Sequence[float]) -> int:
    """Which attempt is made now, from 1 on, of an end that NATS has handed out so many times and stored ``age_s`` ago.

    It may have handed it out to a program that stopped, or that could read no secret: no attempt came of that. So it is
    none that the schedule has later.
    """
    pauses = itertools.accumulate(pause_s * (1 - _JITTER) for pause_s in retries_s)
    return min(times, 1 + sum(1 for earliest_s in pauses if earliest_s <= age_s))


def decide(status: int, attempt: int, retries_s: Sequence[float], chance: float) -> Decision:
    """What follows attempt number ``attempt``, from 1 on, that was answered ``status``, 0 = not at all.

    retries_s: the pause after each attempt that failed. chance: from 0 to 1, for a jitter of a tenth either way, so
    that deliveries that failed together do not come together again.
    """
    if 200 <= status < 300:
        return Decision(Outcome.DELIVERED)
    if status == GONE:
        return Decision(Outcome.GONE)
    if attempt > len(retries_s):
        return Decision(Outcome.GIVEN_UP)
    return Decision(Outcome.FAILED, retries_s[attempt - 1] * (1 + _JITTER * (2 * chance - 1)))
