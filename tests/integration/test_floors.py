"""The lowest versions that pyproject.toml allows work: an environment of them runs the gateway's part of the tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
UNREACHABLE = re.compile(r"error sending request|dns error|[Ff]ailed to fetch|Request failed")
SMOKE = (
    "tests/unit/test_up_client.py",
    "tests/unit/test_tensors.py",
    "tests/unit/test_codec_roundtrip.py",
    "tests/unit/test_gateway_dispatcher.py",
    "tests/unit/test_edge_requests.py",
    "tests/unit/test_front_framing.py",
    "tests/unit/test_core_messages.py",
    "tests/integration/test_gateway_transports.py",
    "tests/integration/test_gateway_http2.py",
)
INI = (
    "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\naddopts = --import-mode=importlib\n"
)


def uv(*arguments: str) -> None:
    done = subprocess.run([UV, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"the package index is not reachable: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_gateway_and_the_client_work_with_the_lowest_versions_allowed(tmp_path: Path) -> None:
    """Worker and console are not tried: TensorFlow's and Django's wheels take longer than what they would show."""
    lowest, python = tmp_path / "lowest.txt", tmp_path / "env" / "bin" / "python"
    extras = ("--extra", "gateway", "--extra", "client")
    compiled = ("pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python-version", "3.11", *extras)
    uv(*compiled, str(ROOT / "pyproject.toml"), "--output-file", str(lowest))
    uv("venv", "--quiet", "--python", sys.executable, str(tmp_path / "env"))
    tools = ("pytest", "pytest-asyncio", "hypothesis")
    uv("pip", "install", "--quiet", "--python", str(python), "--requirements", str(lowest), *tools)
    (tmp_path / "pytest.ini").write_text(INI)
    argv = [str(python), "-m", "pytest", "-c", str(tmp_path / "pytest.ini"), f"--rootdir={ROOT}"]
    argv += ["--confcutdir=tests/unit", "-p", "no:cacheprovider", "-q", *SMOKE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:]
