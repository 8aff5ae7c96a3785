"""The files of deploy/observe: as generate.py makes them, of metrics that there are, with a heading for each alert."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rigs.prometheus import OBSERVE, ROOT, dashboards, expressions, generated

FAMILIES = set(
    re.findall(
        r"^\| `((?:signalbox|tfservingcache)_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text("utf-8"), re.MULTILINE
    )
)
NAMES = FAMILIES | {f"{each}_{part}" for each in FAMILIES for part in ("bucket", "sum", "count")}
RULES: dict[str, Any] = yaml.safe_load((OBSERVE / "rules.yml").read_text("utf-8"))
ALERTS: list[dict[str, Any]] = RULES["groups"][0]["rules"]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
SECTION = OPERATIONS.partition("## What to do at an alarm")[2].partition("\n## ")[0]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))


def metrics_of(expr: str) -> set[str]:
    return set(re.findall(r"\b(?:signalbox|tfservingcache)_\w+", expr))


def test_the_files_are_as_the_script_makes_them() -> None:
    made = generated()
    there = {path: (OBSERVE / path).read_text("utf-8") for path in made if (OBSERVE / path).exists()}
    assert there == made, "run: python deploy/observe/generate.py"
    assert {f"dashboards/{path.name}" for path in (OBSERVE / "dashboards").iterdir()} <= set(made)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_each_alert_is_of_metrics_there_are_and_a_heading_says_what_to_do(alert: dict[str, Any]) -> None:
    assert metrics_of(alert["expr"]) <= NAMES
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert page == "docs/operations.md"
    parts = {re.sub(r"[^a-z0-9 -]", "", p.splitlines()[0].lower()): p for p in SECTION.split("\n### ")[1:]}
    found = {title.replace(" ", "-"): text for title, text in parts.items()}
    assert f"`{alert['alert']}`" in found[anchor], "its heading does not tell of it"


def test_no_heading_tells_of_an_alert_that_is_gone() -> None:
    told = set(re.findall(r"`([A-Z]\w+[a-z]\w*)`", SECTION)) - {"QueueFull"}
    assert told == {alert["alert"] for alert in ALERTS}


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda each: str(each["uid"]))
def test_each_dashboard_asks_a_question_and_is_of_metrics_there_are(dashboard: dict[str, Any]) -> None:
    assert dashboard["title"].endswith("?")
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(titles) == len(set(titles)) >= 8
    for title, _, expr in expressions(dashboard):
        assert metrics_of(expr) <= NAMES, title
        assert metrics_of(expr) or "up" in expr


def test_the_six_dashboards_are_there() -> None:
    wanted = ("fleet", "model", "device", "callers", "nats", "console")
    assert {each["uid"] for each in dashboards()} == {f"signalbox-{name}" for name in wanted}


def test_prometheus_reads_every_program_of_compose_that_stays() -> None:
    config = yaml.safe_load((OBSERVE / "prometheus.yml").read_text("utf-8"))
    targets = [
        target for job in config["scrape_configs"] for each in job["static_configs"] for target in each["targets"]
    ]
    staying = {
        name
        for name, service in COMPOSE["services"].items()
        if "build" in service and service["restart"] not in {"no", "on-failure"}
    }
    assert sorted(targets) == sorted(f"{name}:9100" for name in staying)
    for name in staying:
        assert "bus" in COMPOSE["services"][name]["networks"]
    assert COMPOSE["services"]["prometheus"]["networks"][0] == "bus"


def test_prometheus_reads_files_of_hosts_where_compose_mounts_their_folder() -> None:
    config = yaml.safe_load((OBSERVE / "prometheus.yml").read_text("utf-8"))
    (worker,) = (job for job in config["scrape_configs"] if job["job_name"] == "worker")
    (pattern,) = (file for each in worker["file_sd_configs"] for file in each["files"])
    mounts = dict(mount.split(":")[:2][::-1] for mount in COMPOSE["services"]["prometheus"]["volumes"])
    assert (Path(pattern).name, mounts[str(Path(pattern).parent)]) == ("*.yml", "./deploy/observe/hosts")
    assert "/deploy/observe/hosts/*.yml" in (ROOT / ".gitignore").read_text("utf-8").split()


def test_the_page_s_file_of_hosts_is_one_that_prometheus_takes() -> None:
    page = (ROOT / "docs" / "hosts.md").read_text("utf-8").partition("## Metrics of hosts")[2].partition("\n## ")[0]
    groups, override = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert all(re.fullmatch(r"[\d.]+:\d+", target) for each in groups for target in each["targets"])
    (down,) = (alert["expr"] for alert in ALERTS if alert["alert"] == "ProgramIsDown")
    found = re.fullmatch(r"up\{endpoint!~'(.+)'\} == 0", down)
    assert found is not None
    named = [each.get("labels", {}).get("endpoint", "") for each in groups]
    assert [bool(re.fullmatch(found[1], name)) for name in named] == [False, True]
    (network,) = override["services"]["prometheus"]["networks"]
    assert network in override["networks"]
    assert network not in COMPOSE["networks"]


def test_what_grafana_reads_is_mounted_where_it_looks() -> None:
    mounts = dict(mount.split(":")[:2] for mount in COMPOSE["services"]["grafana"]["volumes"])
    provider = yaml.safe_load((OBSERVE / "grafana" / "dashboards.yml").read_text("utf-8"))["providers"][0]
    assert mounts["./deploy/observe/dashboards"] == provider["options"]["path"]
    (source,) = yaml.safe_load((OBSERVE / "grafana" / "datasources.yml").read_text("utf-8"))["datasources"]
    uids = set(re.findall(r'"uid": "(\w+)"', json.dumps(dashboards())))
    assert uids == {source["uid"]}
    assert all(Path(inside).is_absolute() for inside in mounts.values())
