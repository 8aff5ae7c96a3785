"""promtool's own word on deploy/observe: each alert has tests that fire and one that is silent, and all pass."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.rigs.prometheus import OBSERVE


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian's package prometheus; make test installs it)")
    done = subprocess.run([program, *arguments], cwd=OBSERVE, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.prometheus
def test_prometheus_takes_the_rules() -> None:
    rules = json.loads((OBSERVE / "rules.yml").read_text("utf-8"))["groups"][0]["rules"]
    assert f"{len(rules)} rules found" in promtool("check", "rules", "rules.yml")


@pytest.mark.prometheus
def test_prometheus_takes_its_configuration() -> None:
    promtool("check", "config", "--syntax-only", "prometheus.yml")


@pytest.mark.prometheus
def test_each_alert_fires_and_is_silent_when_it_should() -> None:
    rules = json.loads((OBSERVE / "rules.yml").read_text("utf-8"))["groups"][0]["rules"]
    tests: list[dict[str, Any]] = json.loads((OBSERVE / "rules_test.yml").read_text("utf-8"))["tests"]
    named = {test["name"] for test in tests}
    wanted = {f"{rule['alert']} {how}" for rule in rules for how in ("fires", "is silent")}
    wanted |= {f"{rule['alert']} fires at the first" for rule in rules if "increase(" in rule["expr"]}
    assert named == wanted
    promtool("test", "rules", "rules_test.yml")
