"""Simulated worlds, 60 of them or two thousand, and some twenty faults in each: none breaks a promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import depth

SEEDS, FAULTS = depth.at(short=(60, 1_000), full=(2_000, 40_000))
ROOT = Path(__file__).parents[4]


@pytest.mark.proof
@pytest.mark.timeout(2400)
def test_no_world_breaks_a_promise() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "verification.simulation", "--seeds", str(SEEDS), "--jobs", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    faults = re.search(r"([\d,]+) faults,", done.stdout)
    assert faults is not None
    assert int(faults.group(1).replace(",", "")) >= FAULTS
