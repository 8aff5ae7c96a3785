"""systemd takes the units of deploy/systemd, and what they start is there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
INSTANCES = {
    "gateway": "gateway_plugin",
    "outbound": "gateway_plugin.outbound",
    "console": "console serve",
    "projector": "console projector",
    "controller": "console controller",
}
PAGE = (ROOT / "docs" / "images.md").read_text("utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    for name in ("python", "signalbox"):
        program = tmp_path / "current/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
    names = [unit.name.replace("@", f"@{name}") for name in INSTANCES] if "@" in unit.name else [unit.name]
    for name in names:
        copy = tmp_path / name
        copy.write_text(unit.read_text("utf-8").replace("/opt/signalbox", str(tmp_path)), "utf-8")
        argv = ["systemd-analyze", "verify", str(copy)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), name


def test_every_unit_is_checked_and_told_of() -> None:
    assert {unit.name for unit in UNITS} == {"signalbox-host.service", "signalbox@.service"}
    assert all(unit.name.removesuffix(".service") in PAGE for unit in UNITS)


def test_the_page_says_for_each_instance_a_program_that_there_is() -> None:
    from django.core.management import get_commands

    told = dict(re.findall(r"^\| `signalbox@(\w+)` \| `([\w. ]+)` \|", PAGE, re.MULTILINE))
    assert told == INSTANCES
    for program in told.values():
        module, *command = program.split()
        assert (ROOT / module.replace(".", "/") / "__main__.py").exists()
        assert set(command) <= set(get_commands())
