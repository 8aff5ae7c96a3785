"""``make images`` from nothing, where the environment asks for it: minutes, and the package index."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verification.images import record
from verification.images.record import BUILT, ROOT


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(os.environ.get("SIGNALBOX_TEST_IMAGES") != "on", reason="SIGNALBOX_TEST_IMAGES=on asks for it")
@pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("buildah") and shutil.which("mmdebstrap")),
    reason="root with buildah and mmdebstrap builds images",
)
def test_images_are_built_and_a_job_runs_from_their_roots(tmp_path: Path) -> None:
    given = ["--folder", str(tmp_path / "images"), "--record", str(tmp_path / "built.json")]
    done = subprocess.run(
        [sys.executable, "-m", "verification.images", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=3500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = record.read(tmp_path / "built.json")
    assert {name: each.inputs for name, each in made.images.items()} == {name: record.inputs(name) for name in BUILT}
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text("utf-8")
