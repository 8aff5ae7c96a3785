"""Faults over the stack that docker-compose.yml declares: no accepted job is lost, every refusal may be retried.

How long each recovery takes is measured by hand (``python -m verification.chaos production``): that is the machine's.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signalbox.program.errors import Misconfigured
from tests.e2e.test_production import RETRYABLE, predict
from verification.chaos.environment import namespace
from verification.chaos.evidence.history import History, accepted
from verification.chaos.laws import checks
from verification.production import machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
RUN_S = 900
END_S = 180
FAULTS = (
    "kill tyk",
    "kill plugin-1",
    "kill nats-1",
    "kill worker-1",
    "kill postgres",
    "kill redis",
    "kill controller",
    "stop plugin-2",
    "stop nats-2",
    "stop worker-2",
    "cut both tyk from plugin-1",
    "cut in worker-1 from nats",
    "cut out nats-3 from the other nodes",
    "away nats",
    "host gone console",
    "restart redis",
    "lose redis",
    "restart postgres",
    "lose postgres",
    "kill guard",
    "freeze successor",
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``up.json`` of a production stack."""
    try:
        machine.describe()
    except Misconfigured as error:
        pytest.skip(error.public_message)
    if why := namespace.reason_against():
        pytest.skip(f"no link can be cut here: {why}")
    data = tmp_path_factory.mktemp("production")
    argv = [sys.executable, "-m", "verification.production", "--data", str(data), "--ports", "any", "--intervals"]
    with subprocess.Popen(
        argv, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as stack:
        assert stack.stdout is not None
        said: list[str] = []
        try:
            for line in stack.stdout:
                said.append(line)
                if "Ctrl-C stops everything" in line:
                    break
            assert (data / "up.json").exists(), "".join(said)
            yield data / "up.json"
        finally:
            stack.send_signal(signal.SIGINT)
            rest, _ = stack.communicate(timeout=END_S)
            print("".join(said), rest)


def test_a_plugin_that_is_stopped_is_killed_by_its_health_check_and_calls_go_on(up: Path) -> None:
    """Its kernel goes on acknowledging what Tyk sends, so that Tyk never gives it up."""
    doc: dict[str, Any] = json.loads(up.read_text())
    stopped = doc["processes"]["plugin-2"]
    deadline = time.monotonic() + END_S
    os.kill(stopped, signal.SIGSTOP)
    while json.loads(up.read_text())["processes"].get("plugin-2", stopped) == stopped:
        assert time.monotonic() < deadline, "it was not ended"
        time.sleep(0.1)
    while (status := predict(doc)) != 200:
        assert status in RETRYABLE
        assert time.monotonic() < deadline


def test_faults_of_every_service_and_link_break_no_law(up: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "verification.chaos",
            "production",
            "--up",
            str(up),
            "--seed",
            "1",
            "--callers",
            "3",
            "--at-most",
            "8",
            "--only",
            ",".join(FAULTS),
            "--folder",
            str(folder),
        ],
        cwd=ROOT,
        check=False,
        text=True,
        timeout=RUN_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    print(done.stdout[-8000:])  # its exit status is also about seconds
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    found = History.of_run(folder)
    assert checks.check(found) == []
    assert accepted(found.ledger)
    assert found.intervals, "no runner was let in"
    assert {*summary["kinds"], *summary["skipped"]} == set(FAULTS)
    assert len(summary["kinds"]) > len(FAULTS) // 2, "the machine had no time for most of them"
