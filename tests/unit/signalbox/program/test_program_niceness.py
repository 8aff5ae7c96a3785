"""A program that lets others go first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = """
import os
from signalbox.program.niceness import give_way
give_way(7)
print(os.getpriority(os.PRIO_PROCESS, 0))
print(open("/proc/self/autogroup").read() if os.path.exists("/proc/self/autogroup") else "")
"""


@pytest.mark.parametrize("leads", [True, False])
def test_it_takes_a_smaller_part_of_processors_and_so_does_a_session_that_it_leads(leads: bool) -> None:
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    said = subprocess.run(
        [sys.executable, "-c", SAYS],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=leads,
    ).stdout.split("\n")
    assert int(said[0]) == min(19, mine + 7)
    if said[1]:  # a kernel that shares by session
        assert said[1].endswith("nice 7") is leads
