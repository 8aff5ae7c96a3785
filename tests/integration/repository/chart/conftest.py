"""Secrets as make_secrets.py makes them, for containers of the chart."""

import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.program import nkeys
from tests.rigs.helm import ROOT


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What make_secrets.py makes, the seed of a pod's key, and the headers of a collector."""
    folder = tmp_path_factory.mktemp("chart") / "secrets"
    script = ROOT / "deploy" / "make_secrets.py"
    subprocess.run([sys.executable, script, "--folder", folder], check=True, timeout=60, stdout=subprocess.DEVNULL)
    (folder / "nats_seed").write_text(nkeys.mint())
    (folder / "traces_headers").write_text(f"authorization=Bearer%20{'a1' * 32}")
    return folder
