"""What a release is made of, as CycloneDX: everything that is locked, and the same twice."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from signalbox import __version__

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "sbom.py"


@pytest.mark.parametrize("program", ["gateway", "worker", "console"])
def test_every_locked_package_is_listed_with_its_version_and_digests(program: str) -> None:
    locked = ROOT / "requirements" / f"{program}.txt"
    argv = [sys.executable, str(SCRIPT), str(locked)]
    first, second = (subprocess.run(argv, capture_output=True, check=True, timeout=60) for _ in "12")
    assert first.stdout == second.stdout
    found: dict[str, Any] = json.loads(first.stdout)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["version"] == __version__
    text = locked.read_text()
    listed = {one["name"]: one for one in found["components"]}
    assert {name: one["version"] for name, one in listed.items()} == dict(
        re.findall(r"^([^=\s]+)==(\S+)", text, re.MULTILINE)
    )
    digests = [digest["content"] for one in found["components"] for digest in one["hashes"]]
    assert sorted(digests) == sorted(re.findall(r"sha256:(\w+)", text))
    assert listed["msgspec"]["purl"] == f"pkg:pypi/msgspec@{listed['msgspec']['version']}"


@pytest.mark.parametrize("line", ["numpy>=2.0", "numpy==2.0", "-r other.txt"])
def test_what_is_not_locked_is_refused_rather_than_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "loose.txt").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=line):
        runpy.run_path(str(SCRIPT))["sbom"](tmp_path / "loose.txt")
