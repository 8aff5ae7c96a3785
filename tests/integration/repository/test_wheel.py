"""What a wheel of ours holds: all files of the four packages, and programs that start from any folder."""

import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Final

import pytest

from signalbox import __version__
from tests.e2e.upprocess import EDGE, Up, wait_until_gone
from tests.rigs import wheels
from tests.rigs.wheels import PACKAGES

ROOT: Final = Path(__file__).parents[3]


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in argv], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel installed; what it depends on is lent by this one, without our sources."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    python.with_name("nats-server").symlink_to(Path(sys.executable).with_name("nats-server"))
    (site / "lent.pth").write_text(f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n")
    return python


def test_the_wheel_is_typed_and_carries_the_front_s_files_as_they_are(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for package in PACKAGES:
            assert f"{package}/py.typed" in names
        files = [path for path in (ROOT / "tyk").rglob("*") if path.is_file()]
        assert len(files) >= 5
        for path in files:
            assert archive.read(f"gateway_plugin/tyk/{path.relative_to(ROOT / 'tyk')}") == path.read_bytes()
    assert not [name for name in names if name.startswith(("tyk/", "tests/", "build/"))]


def test_the_wheel_carries_every_file_that_lies_beside_a_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = set(archive.namelist())
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    beside = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    assert "workers/runner/tensorflow_ops.txt" in beside
    assert beside - carried == set()


def test_the_programs_of_an_installed_wheel_start_from_an_empty_folder(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNALBOX_KEY_PEPPER", "pepper")
    monkeypatch.setenv("SIGNALBOX_GATEWAY_LISTEN", "")
    monkeypatch.setenv("SIGNALBOX_GATEWAY_EDGE_LISTEN", "127.0.0.1:0")
    for program in ("gateway_plugin", "workers"):
        assert "SIGNALBOX_NATS_URL=" in run(python, "-m", program, "--check-config", cwd=tmp_path)
    assert "--workers" in run(python, "-m", "signalbox", "up", "--help", cwd=tmp_path)


def test_an_installed_wheel_says_its_version(python: Path, wheel: Path, tmp_path: Path) -> None:
    said = run(python.with_name("signalbox"), "--version", cwd=tmp_path)
    assert said == f"signalbox {__version__}\n"
    assert wheel.name.startswith(f"signalbox-{__version__}-")


@pytest.mark.slow
def test_an_installed_wheel_brings_the_whole_system_up_in_an_empty_folder(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    up = Up(tmp_path / ".signalbox", *EDGE, python=python, folder=tmp_path)
    try:
        up.wait_for_line(r"digits says \d \(\d+\.\d% sure\); the writer meant \d")
        up.wait_until_up()
        started = up.everything()
        assert up.end(signal.SIGINT) == 0, "".join(up.printed)
        wait_until_gone(started)
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == [".signalbox"]
