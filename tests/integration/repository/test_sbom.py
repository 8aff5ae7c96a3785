"""What a release is made of, as CycloneDX: everything that is locked, with its digests."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from signalbox import __version__

ROOT = Path(__file__).resolve().parents[3]
UNREACHABLE = re.compile(r"error sending request|dns error|[Ff]ailed to fetch|Request failed")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["gateway", "worker", "worker-cuda", "console"])
def test_every_locked_package_is_listed_with_its_version_and_digests(program: str, tmp_path: Path) -> None:
    given = [f"VENV={sys.prefix}", f"SBOM={tmp_path}", f"IMAGES={program}"]
    argv = ["make", "--silent", f"--old-file={sys.prefix}/dev.stamp", *given, "sbom"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"uv export asks the package index, which is not reachable: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((tmp_path / f"{program}.cdx.json").read_text())
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == f"signalbox-{program}"
    assert found["metadata"]["component"]["version"] == __version__
    text = (ROOT / "requirements" / f"{program}.txt").read_text()
    listed = {one["name"]: one for one in found["components"]}
    assert {name: one["version"] for name, one in listed.items()} == dict(
        re.findall(r"^([^=\s]+)==([^\s;]+)", text, re.MULTILINE)
    )
    digests = {
        digest["content"]
        for one in found["components"]
        for reference in one["externalReferences"]
        for digest in reference["hashes"]
    }
    assert digests <= set(re.findall(r"sha256:(\w+)", text))
    assert listed["msgspec"]["purl"] == f"pkg:pypi/msgspec@{listed['msgspec']['version']}"
