"""A batch on its way never holds up the supervisor's loop, which must answer NATS and the guard meanwhile."""

import asyncio
import itertools
import time

from tests.unit.workers.serving.test_worker_execution import FINE, Runner, execution, held, outcomes
from workers.serving.batchrun import BatchRun

ABORTED_S = 5.0
"""A loop that stands still for so long ends its process."""


async def test_the_loop_turns_while_a_batch_runs() -> None:
    loop = asyncio.get_running_loop()
    beats = [time.monotonic()]

    def beat() -> None:
        beats.append(time.monotonic())
        loop.call_later(0.01, beat)

    loop.call_soon(beat)
    await asyncio.sleep(0)
    made = execution(Runner())
    assert await outcomes(made, BatchRun([held(FINE)])) == [FINE]
    beats.append(time.monotonic())
    gaps = [after - before for before, after in itertools.pairwise(beats)]
    assert max(gaps) < ABORTED_S
