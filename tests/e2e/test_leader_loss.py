"""The node that leads leases, records, then the queue is killed under load: no job fails, no healthy worker is fenced.

How long nothing is accepted meanwhile is measured by hand (``python -m verification.chaos leader``): that is the
machine's.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from verification.chaos.evidence.history import History, accepted
from verification.chaos.laws import checks

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_leaders_of_three_nodes_die_and_no_job_fails_and_no_healthy_runner_is_fenced(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "verification.chaos",
            "leader",
            "--rounds",
            "3",
            "--seed",
            "1",
            "--folder",
            str(tmp_path),
        ],
        cwd=ROOT,
        check=False,
        text=True,
        timeout=360,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    print(done.stdout[-6000:])  # its exit status is also about seconds
    found = History.of(tmp_path / "history")
    assert checks.check(found) == []
    struck = [f for f in found.faults if (f["event"], f.get("kind")) == ("begin", "kill leader")]
    assert {fault["stream"] for fault in struck} == {"KV_leases", "STATE", "JOBS"}
    ends = {entry["job"]: entry["state"] for entry in found.final if "job" in entry}
    assert {ends[job] for job in accepted(found.ledger)} <= {"succeeded", "cancelled"}
