"""Five queues, twenty consumers of three groups, one fault after another: nothing lost, skipped or given too often.

By hand with more: ``python -m verification.chaos.queues --items 50000``.
"""

from pathlib import Path

import pytest

from verification.chaos.queues.run import ITEMS, judge, report, run

SEED = 20_261_129


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_faults_over_queues_break_no_law(tmp_path: Path) -> None:
    found = await run(tmp_path, ITEMS, SEED)
    told = report(found)
    print(told)
    assert judge(found) == [], told
    assert len(found.put) == ITEMS
    times = {(one.queue, one.group, one.index) for one in found.receipts}
    assert len(found.receipts) > len(times), "no fault hit anything"
