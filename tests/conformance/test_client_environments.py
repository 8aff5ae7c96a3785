"""How the environments of published clients are made: once, whole or not at all, and of nothing but what is locked."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conformance.clients import environments
from tests.conformance.clients.environments import Environment
from tests.conformance.programs import ROOT

NAME = "sample"
MAKE = f"""
import sys
from pathlib import Path
from tests.conformance.clients import environments
environments.LOCKS = Path(sys.argv[1])
print(environments.environment("{NAME}").python)
"""


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a lock file of one package, which lies there too; pip may look nowhere else."""
    wheel = tmp_path / f"{NAME}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{NAME}.py", "HELD = 'yes'\n")
        info = f"{NAME}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    lock(tmp_path, hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(environments, "LOCKS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def lock(folder: Path, digest: str, name: str = NAME) -> None:
    (folder / f"{NAME}.lock").write_text(f"{name}==1.0 \\\n    --hash=sha256:{digest}\n")


def make() -> Environment:
    """As in a process that has not asked before."""
    return environments.environment.__wrapped__(NAME)


def test_runs_at_once_share_one_environment_that_is_made_once(locks: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(locks)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
    first, second = (each.communicate(timeout=100)[0].strip() for each in both)
    assert first == second
    said = subprocess.run(
        [first, "-c", f"import {NAME}; print({NAME}.HELD)"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "yes\n"
    made = Path(first).parents[1]
    before = made.stat().st_ctime_ns
    assert make().python == Path(first)
    assert made.stat().st_ctime_ns == before


def test_another_lock_is_another_environment(locks: Path) -> None:
    first = make()
    file = locks / f"{NAME}.lock"
    file.write_text(f"{file.read_text()}# as it is now\n")
    assert first.python != make().python


def test_packages_that_cannot_be_had_leave_nothing_and_are_asked_for_again(locks: Path) -> None:
    good = (locks / f"{NAME}.lock").read_text()
    lock(locks, "0" * 64, "nowhere-to-be-had")
    missing = make()
    assert missing.python is None
    assert "nowhere-to-be-had" in missing.missing
    assert not [path for path in environments.cache().iterdir() if path.is_dir()]
    (locks / f"{NAME}.lock").write_text(good)
    assert make().python is not None


def test_a_package_with_another_hash_is_no_reason_to_skip(locks: Path) -> None:
    lock(locks, "0" * 64)
    with pytest.raises(AssertionError, match="DO NOT MATCH THE HASHES"):
        make()
    assert not [path for path in environments.cache().iterdir() if path.is_dir()]
