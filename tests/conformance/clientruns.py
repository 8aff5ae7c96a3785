"""Runs a published client's script against a front, in the client's own environment."""

import json
import os
import subprocess
import sysconfig
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests import depth
from tests.conformance.clients.environments import environment
from tests.conformance.clients.steps import Target
from tests.conformance.conftest import KINDS as FRONTS
from tests.conformance.programs import ROOT
from tests.conformance.servedmodels import Served

KINDS: Final = depth.at(short=FRONTS[:1], full=FRONTS)
"""The fronts that clients call: a client takes a quarter of a minute for each."""
SCRIPT_S: Final = 300.0

Report = dict[str, Any]
"""What came of each of a script's steps, by its name."""


def program(heading: str) -> str:
    """The program under a heading of ``docs/clients.md``."""
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {heading}\n", 1)[1]
    return section.split("```python\n", 1)[1].split("```", 1)[0]


def printed(heading: str) -> str:
    """What the page says that its program prints."""
    return program(heading).rpartition("  # ")[2]


def client(name: str, env: str = "", heading: str = "", *, has_tensorflow: bool = False) -> Callable[[Served], Report]:
    """A fixture: what the script ``<name>_client.py`` reports, run once for each front.

    env: its lock file's name, heading: its name in ``docs/clients.md``; both where they are not ``name``.
    has_tensorflow: the client needs TensorFlow, and gets the one that our workers run: its own requirement is the same
    code under another name, half a gigabyte of it.
    """

    @pytest.fixture(scope="module", name=name)
    def report(served: Served) -> Report:
        made = environment(env or name)
        if made.python is None:
            pytest.skip(f"the packages of {name} cannot be had: {made.missing}")
        target = Target(urlsplit(str(served.client.base_url)).netloc, served.grpc, served.key, program(heading or name))
        path = [str(ROOT), *([sysconfig.get_path("purelib")] if has_tensorflow else [])]
        ran = subprocess.run(
            [made.python, str(ROOT / "tests" / "conformance" / "clients" / f"{name}_client.py")],
            input=json.dumps(target._asdict()),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=SCRIPT_S,
            check=False,
        )
        print(ran.stderr)  # shown where a test fails
        assert ran.returncode == 0, ran.stderr
        found: Report = json.loads(ran.stdout.splitlines()[-1])
        return found

    return report
