"""What a failed attempt of a job counts as."""

from enum import Enum


class Penalty(Enum):
    """What a failed attempt counts as.

    strike: it ran alone and ended the runner, used its memory up or exceeded its time. failure: it counts towards
    ``max_delivery`` only. none: it was an outage of Signalbox, or its end is the job's.
    """

    NONE = "none"
    STRIKE = "strike"
    FAILURE = "failure"
