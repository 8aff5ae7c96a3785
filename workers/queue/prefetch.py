"""Prefetch and pull credit: how many jobs to ask for. Pure: counts in, numbers out.

Each model has three consumers. A credit is a job that this worker has asked for and not yet received, so that never
more jobs wait here than are waiting now plus the credits. Consumers of higher priority ask as if the others did not
exist; those of lower priority only for the room that the waiting jobs leave. Prefetch hides the queue's latency for
quick models; for slow ones it only keeps jobs from a free worker.
"""

from collections.abc import Mapping
from typing import Final

from signalbox.wire.names import PRIORITIES, Priority

QUICK_RUN_S: Final = 0.1
"""A run below this is quick: two batches are kept ready so that the device never waits."""
SLOW_RUN_S: Final = 0.5
"""A run above this is slow: no job is asked for while one is running."""
AHEAD_S: Final = 0.02
"""What waits for a quick model suffices at least for so long: the queue takes less to bring more."""
MOST_AHEAD: Final = 64
"""The most jobs that wait for that reason."""


def depth(max_size: int, run_s: float | None, *, is_running: bool, mean_bytes: float, room_bytes: int) -> int:
    """How many jobs should wait at this worker beside those that run.

    max_size: rows of a full batch, 1 where each job runs alone. run_s: mean seconds of a run, None before the first.
    mean_bytes: mean size of a job's inputs; the jobs that wait shall not pass ``room_bytes``.
    """
    if run_s is not None and run_s > SLOW_RUN_S:
        wanted = 0 if is_running else max_size
    elif run_s is not None and run_s < QUICK_RUN_S:
        wanted = max(2 * max_size, min(MOST_AHEAD, int(AHEAD_S / max(run_s, 1e-6))))
    else:
        wanted = max_size
    if mean_bytes > 0:
        wanted = min(wanted, max(1, int(room_bytes / mean_bytes)))
    return wanted


def missing_credits(
    wanted: int, waiting: Mapping[Priority, int], outstanding: Mapping[Priority, int]
) -> dict[Priority, int]:
    """How many credits to ask for anew, per priority.

    Small top-ups wait until a quarter of the depth is free, so that one request brings many jobs.
    """
    result: dict[Priority, int] = {}
    before = 0
    for priority in PRIORITIES:
        before += waiting[priority]
        missing = wanted - before - outstanding[priority]
        if missing > 0 and (missing * 4 >= wanted or outstanding[priority] == 0):
            result[priority] = missing
    return result
