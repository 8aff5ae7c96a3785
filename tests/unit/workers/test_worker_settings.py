import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.program.errors import Misconfigured
from signalbox.program.settings import load
from workers.main import main
from workers.settings import PREFIX, WorkerSettings


def loaded(**env: str) -> WorkerSettings:
    return load(WorkerSettings, PREFIX, {f"{PREFIX}{name}": value for name, value in env.items()})


def test_the_defaults_fit_each_other_and_the_lease(tmp_path: Path) -> None:
    loaded(LOCK_DIR=str(tmp_path)).leased_device().check()


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"ACK_WAIT_S": "15"}, "ACK_WAIT_S"),
        ({"IN_PROGRESS_S": "20"}, "IN_PROGRESS_S"),
        ({"PRESENCE_S": "5"}, "PRESENCE_TTL_S"),
        ({"FENCE_S": "6"}, "PING_INTERVAL_S"),
        ({"DEVICE": "tpu:0"}, "DEVICE"),
        ({"ID": "a b"}, "ID"),
        ({"MODELS": ",".join(f"m{n}" for n in range(3000))}, "MODELS"),
        ({"PRECENSE_S": "2"}, "PRESENCE_S"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(env: dict[str, str], named: str) -> None:
    with pytest.raises(Misconfigured, match=named):
        loaded(**env)


def test_a_lease_shorter_than_its_fence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        loaded(LOCK_DIR=str(tmp_path), LEASE_TTL_S="14").leased_device().check()


def test_check_config_prints_every_setting_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    env = {"SIGNALBOX_NATS_PASSWORD": "hunter2", f"{PREFIX}DEVICE": "cpu:3"}
    assert main(["--check-config"], env) == 0
    printed = capsys.readouterr().out
    assert "SIGNALBOX_WORKER_DEVICE=cpu:3" in printed
    assert "hunter2" not in printed


def test_wrong_settings_end_with_two_and_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check-config"], {f"{PREFIX}DEVICE": "x"}) == 2
    assert "DEVICE" in capsys.readouterr().err


def test_the_supervisor_never_imports_numpy_or_tensorflow() -> None:
    code = "import sys, workers.main; print([m for m in ('numpy', 'tensorflow') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
