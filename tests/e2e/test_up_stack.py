"""``signalbox up`` as a newcomer runs it: started, used by the README's commands, broken, stopped."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from signalbox.wire.names import MAIN_ACCOUNT
from tests.e2e.upprocess import END_S, ROOT, Up, wait_until_gone
from tests.rigs import models
from tests.rigs.runningstack import RunningStack

OPERATIONS: Final = (ROOT / "docs" / "operations.md").read_text()
SHELL_BLOCK: Final = re.compile(r"```sh\n(.*?)```", re.DOTALL)

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stack's folder, with models that need no training: tests of the wheel train them on a first start."""
    folder = tmp_path_factory.mktemp("up") / "data"
    shutil.copytree(models.demonstration(), folder / "models")
    return folder


@pytest.fixture(scope="module")
def up(data: Path, running: RunningStack | None) -> Iterator[Up]:
    if running is not None:
        pytest.skip("starts `signalbox up` itself")
    started = Up(data)
    try:
        started.wait_until_up()
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def doc(request: pytest.FixtureRequest, running: RunningStack | None) -> dict[str, Any]:
    if running is not None:
        return running.facts
    up: Up = request.getfixturevalue("up")
    found: dict[str, Any] = json.loads((up.data / "up.json").read_text())
    return found


def call(doc: dict[str, Any], command: str, folder: Path, **env: str) -> str:
    """Runs a README command as it stands; curl fails on a refusal by way of its own settings file."""
    (folder / ".curlrc").write_text("fail-with-body\nmax-time = 60\n")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={
            "PATH": os.environ["PATH"],
            "CURL_HOME": str(folder),
            "HOME": str(folder),
            "FRONT": doc["front"],
            "KEY": doc["api_key"],
            **env,
        },
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def readme_commands(*words: str) -> list[str]:
    """The README's shell commands that hold every word, each with its continuation lines."""
    blocks = SHELL_BLOCK.findall((ROOT / "README.md").read_text())
    commands = [command for block in blocks for command in re.split(r"\n(?=\S)", block.replace("\\\n", " ").strip())]
    return [c for c in commands if c.startswith("curl") and all(word in c for word in words)]


def test_a_start_shows_a_real_prediction_and_how_to_go_on(up: Up) -> None:
    text = "".join(up.printed)
    assert re.search(r"digits: (exported|kept) .*, 9\d\.\d% of 360 held-out right", text)
    assert re.search(r"digits says \d \(\d+\.\d% sure\); the writer meant \d", text)
    assert re.search(r"gRPC +127\.0\.0\.1:\d+\n", text)
    assert re.search(r"console +http://127\.0\.0\.1:\d+ +log in as admin with \S+", text)


def test_up_json_is_private_and_names_living_processes(up: Up, doc: dict[str, Any]) -> None:
    assert stat.S_IMODE((up.data / "up.json").stat().st_mode) == 0o600
    assert set(doc) >= {"front", "grpc", "console", "nats", "api_key", "login", "processes"}
    assert set(doc["processes"]) >= {"nats", "gateway", "console", "worker-1", "worker-2"}
    for pid in doc["processes"].values():
        os.kill(pid, 0)


def test_every_prediction_in_the_readme_works(doc: dict[str, Any], tmp_path: Path) -> None:
    half, digit = readme_commands(":predict", "curl -s $FRONT")[:2]
    assert json.loads(call(doc, half, tmp_path)) == {"predictions": [2.5, 3.0, 4.5]}
    (row,) = json.loads(call(doc, digit, tmp_path))["predictions"]
    assert row["label"] == 2
    assert abs(sum(row["probabilities"]) - 1) < 1e-3
    (features,) = readme_commands("signature_name")
    (values,) = json.loads(call(doc, features, tmp_path))["outputs"]
    assert len(values) == 32


def test_every_job_command_in_the_readme_works(doc: dict[str, Any], tmp_path: Path) -> None:
    submits = readme_commands("curl -si")
    assert len(submits) == 2
    read, cancel = readme_commands("/v1/jobs/$JOB")
    assert "/v1/jobs/$JOB/cancel" in cancel
    for submit in submits:
        head, _, body = call(doc, submit, tmp_path).replace("\r", "").partition("\n\n")
        job = json.loads(body)["id"]
        assert re.match(r"HTTP/1\.1 202 ", head)
        assert f"/v1/jobs/{job}" in head
        assert json.loads(call(doc, read, tmp_path, JOB=job))["id"] == job


def test_a_job_is_cancelled_by_the_readmes_command(doc: dict[str, Any], tmp_path: Path) -> None:
    (submit,) = readme_commands("/v1/jobs ", '"slow"')
    body = call(doc, submit.replace("[2.0]", "[50.0]").replace("-si", "-s"), tmp_path)
    job = json.loads(body)["id"]
    (cancel,) = readme_commands("/v1/jobs/$JOB/cancel")
    assert json.loads(call(doc, cancel, tmp_path, JOB=job))["id"] == job


LAST_WORDS = {
    "gateway_plugin": "job.rendered",
    "worker": "job.replied",
    "projector": "'state': 'succeeded', 'revision'",
}
"""Of a job that was waited for. A program's output reaches its file by a thread of its own: none tells of another's."""


def reported_of(job: str, data: Path, folder: Path) -> list[dict[str, Any]]:
    """What the logs tell of a job once each has its last words, by the command that docs/operations.md gives for it."""
    (command,) = re.findall(r"^grep -h .*$", OPERATIONS, re.MULTILINE)
    deadline = time.monotonic() + END_S
    while True:
        lines = subprocess.run(
            ["bash", "-c", command.replace(".signalbox", str(data))],
            env={"PATH": os.environ["PATH"], "JOB": job},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        reported: list[dict[str, Any]] = [json.loads(line) for line in lines]
        late = [
            program
            for program, words in LAST_WORDS.items()
            if not any(one["program"] == program and words in str(one) for one in reported)
        ]
        if not late:
            return reported
        assert time.monotonic() < deadline, f"no last words of {late} in {lines}"
        time.sleep(0.05)


def test_a_job_is_followed_through_the_logs_of_all_programs(up: Up, doc: dict[str, Any], tmp_path: Path) -> None:
    half = readme_commands("half_plus_two:predict", "curl -s $FRONT")[0]
    answer = call(doc, half.replace("-s", "-si", 1).replace("5.0]", "4711.125]"), tmp_path)
    assert "2357.5625" in answer
    (job,) = re.findall(r"(?i)x-signalbox-job-id: (\S+)", answer)
    reported = reported_of(job, up.data, tmp_path)

    def events(program: str) -> list[str]:
        found = [one["event"] for one in reported if one["program"] == program]
        return [event for event in found if event not in {"job.claimed", "job.loading"}]

    assert events("gateway_plugin") == ["job.accepted", "job.reply_received", "job.rendered"]
    path = ["job.pulled", "job.started", "job.computed", "job.ended", "job.replied"]
    assert events("worker")[: len(path)] == path
    # Whoever gets the device next reads what is still in the queue, ended jobs too until they are removed.
    assert set(events("worker")[len(path) :]) <= {"job.pulled"}
    assert set(events("projector")) == {"job.projected"}
    assert {one["event"] for one in reported} <= set(re.findall(r"^\| `(job\.\w+)`", OPERATIONS, re.MULTILINE))
    (end,) = [one for one in reported if one["event"] == "job.ended"]
    assert {name: end[name] for name in ("job", "model", "version", "attempt", "state", "code", "level")} == {
        "job": job,
        "model": "half_plus_two",
        "version": 1,
        "attempt": 1,
        "state": "succeeded",
        "code": "",
        "level": "debug",
    }
    assert end["worker"] in {"worker-1", "worker-2"}
    assert end["gpu"].startswith("CPU-")
    assert end["token"] > 0
    assert next(iter(end["phases"])) == "pulled"
    assert {"started", "computed", "done"} <= set(end["phases"])
    logs = "".join(path.read_text() for path in (up.data / "logs").glob("*.log*"))
    for secret in ("4711.125", "2357.5625", doc["api_key"]):
        assert secret not in logs


def test_every_model_command_in_the_readme_works(doc: dict[str, Any], tmp_path: Path) -> None:
    commands = [c for c in readme_commands("/v1/models") if "-d " not in c]
    assert len(commands) == 3
    listed, status, metadata = (json.loads(call(doc, c, tmp_path)) for c in commands)
    assert {"digits", "half_plus_two"} <= set(re.findall(r"[\w.-]+", json.dumps(listed)))
    assert status["model_version_status"][0]["state"] == "AVAILABLE"
    assert "signature_def" in metadata["metadata"]


def test_the_demo_streams_digits_and_gets_nearly_all_right(up: Up) -> None:
    argv = [sys.executable, "-m", "signalbox", "demo", "--data", str(up.data)]
    done = subprocess.run(
        [*argv, "--seconds", "3", "--rate", "20"], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    found = re.search(r"(\d+) answered +(\d+\.\d)% right", last)
    assert found, last
    assert int(found[1]) >= 20
    assert float(found[2]) > 90


def test_a_program_that_dies_is_started_again_and_said_so(up: Up, doc: dict[str, Any], tmp_path: Path) -> None:
    for name in ("worker-1", "gateway"):
        before = json.loads((up.data / "up.json").read_text())["processes"][name]
        os.kill(before, signal.SIGKILL)
        up.wait_for_line(rf"{name} was ended by SIGKILL; starting it again")
        after = int(up.wait_for_line(rf"{name} is back \(pid (\d+)\)")[1])
        assert after != before
    half = readme_commands("half_plus_two:predict", "curl -s $FRONT")[0]
    assert json.loads(call(doc, half, tmp_path)) == {"predictions": [2.5, 3.0, 4.5]}


def test_a_second_stack_in_the_same_folder_is_refused(up: Up) -> None:
    argv = [sys.executable, "-m", "signalbox", "up", "--data", str(up.data)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"Another stack runs in {up.data} (pid {up.process.pid})" in done.stderr


def test_killing_it_leaves_no_process_and_a_start_in_the_moved_folder_keeps_everything(
    up: Up, doc: dict[str, Any], tmp_path: Path
) -> None:
    everything = up.everything()
    assert len(everything) >= 8, everything
    up.end(signal.SIGKILL)
    wait_until_gone(everything)

    again = Up(up.data.rename(up.data.with_name("moved")))
    try:
        second = again.wait_until_up()
        assert second["api_key"] == doc["api_key"]
        assert second["login"] == doc["login"]
        half = readme_commands("half_plus_two:predict", "curl -s $FRONT")[0]
        assert json.loads(call(second, half, tmp_path)) == {"predictions": [2.5, 3.0, 4.5]}
        everything = again.everything()
        assert again.end(signal.SIGINT) == 0
        wait_until_gone(everything)
        assert "stopped; your data stays in" in again.printed[-1]
        assert not (again.data / "up.json").exists()
        assert not up.data.exists()
        again.data.rename(up.data)
    finally:
        if again.process.poll() is None:
            again.end(signal.SIGKILL)


@pytest.mark.slow
def test_a_start_after_streams_and_database_were_lost_serves_without_a_person(
    up: Up, doc: dict[str, Any], tmp_path: Path
) -> None:
    if up.process.poll() is None:
        up.end(signal.SIGINT)
    streams = up.data / "nats" / "store" / "jetstream" / MAIN_ACCOUNT / "streams"
    for name in ("JOBS", "STATE", "KV_leases"):
        shutil.rmtree(streams / name)
    (streams / "KV_models" / "meta.inf").unlink()
    for path in (up.data / "console").glob("console.sqlite3*"):
        path.unlink()

    again = Up(up.data)
    try:
        third = again.wait_until_up()
        printed = "".join(again.printed)
        assert "NATS has lost all that JOBS, STATE, KV_leases held" in printed
        assert "NATS had lost what KV_models is; its messages are there again" in printed
        assert "the console does not know the kept operator token" in printed
        assert third["api_key"] == doc["api_key"], "it goes on in force"
        half = readme_commands("half_plus_two:predict", "curl -s $FRONT")[0]
        assert json.loads(call(third, half, tmp_path)) == {"predictions": [2.5, 3.0, 4.5]}
        token = (up.data / "secrets" / "operator_token").read_text()
        listed = f"curl -s -H 'Authorization: Bearer {token}' {third['console']}/api/unknown-keys"
        deadline = time.monotonic() + END_S
        while not (unknown := json.loads(call(third, listed, tmp_path))):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [key["name"].split()[0] for key in unknown] == ["demo"]
    finally:
        again.end(signal.SIGKILL)
