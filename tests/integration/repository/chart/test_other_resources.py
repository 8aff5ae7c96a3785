"""What the chart asks of KEDA and Prometheus is what the console answers, and what the files of deploy/observe have."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.rigs.chart import COMPONENT, NAMESPACE, Rendered, selects
from tests.rigs.helm import CHART, EXAMPLES, FILES, example
from tests.rigs.prometheus import OBSERVE, dashboards

EVERYTHING = "up{endpoint!~'metrics-.+'} == 0"
"""The rule that is of every target there is."""


def jobs_in(text: str) -> set[str]:
    """The jobs that a rule or dashboard names."""
    found = re.findall(r"""job=~?\\?["']([\w|-]+)""", text)
    return {job for names in found for job in names.split("|")}


def scaled(rendered: Rendered) -> dict[str, Mapping[str, Any]]:
    """What KEDA is told of each workload."""
    return {one["spec"]["scaleTargetRef"]["name"]: one["spec"] for one in rendered.of("ScaledObject")}


def test_keda_scales_each_class_of_workers_that_it_is_told_of() -> None:
    rendered = example("keda")
    workers = {pod.name: pod for pod in rendered.of_component("worker")}
    asked = scaled(rendered)
    assert asked
    assert set(asked) <= set(workers)
    for name, spec in asked.items():
        assert spec["scaleTargetRef"]["kind"] == workers[name].owner["kind"]
        assert "replicas" not in workers[name].owner["spec"], "an upgrade would set them back"
        assert spec["minReplicaCount"] <= spec["maxReplicaCount"]
        assert "fallback" not in spec or spec["fallback"]["replicas"] >= 1, "a console that is away costs no worker"


def test_keda_asks_the_console_for_what_it_answers() -> None:
    from django.urls import resolve

    from console.api.scaling import ClassScaleOut, ScalingOut

    rendered = example("keda")
    services = rendered.named("Service")
    for name, spec in scaled(rendered).items():
        (trigger,) = spec["triggers"]
        url = urlsplit(trigger["metadata"]["url"])
        assert resolve(url.path).view_name == "api-scaling"
        assert url.hostname is not None
        service = services[url.hostname.partition(".")[0]]["spec"]
        assert selects({"matchLabels": service["selector"]}, rendered.pod("console").labels)
        assert url.port in {port["port"] for port in service["ports"]}
        found = re.fullmatch(r'classes\.#\(name==\\?"([\w.-]+)\\?"\)\.(\w+)', trigger["metadata"]["valueLocation"])
        assert found is not None
        assert "classes" in ScalingOut().fields
        assert found[2] == "asked", "wanted is never more than the devices that are there"
        assert {"name", "asked"} <= set(ClassScaleOut().fields)
        worker = next(pod for pod in rendered.of_component("worker") if pod.name == name).container("worker")
        environment = rendered.environment(worker)
        assert environment["SIGNALBOX_HOST_DEVICE_CLASS"] == found[1]
        gpus = sum(int(number) for key, number in worker.spec["resources"]["limits"].items() if "/" in key)
        assert float(trigger["metadata"]["targetValue"]) == (gpus or 1), "devices of a pod"
        hosts = rendered.environment(rendered.pod("console").container("console"))["SIGNALBOX_CONSOLE_ALLOWED_HOSTS"]
        assert url.hostname in hosts.split(","), "the console refuses names that are not its own"


def test_keda_authenticates_with_a_token_of_an_existing_secret() -> None:
    rendered = example("keda")
    known = rendered.named("TriggerAuthentication")
    for spec in scaled(rendered).values():
        (trigger,) = spec["triggers"]
        (reference,) = known[trigger["authenticationRef"]["name"]]["spec"]["secretTargetRef"]
        assert reference["parameter"] == "token"


def test_without_keda_the_chart_says_how_many_workers_there_are() -> None:
    for name in EXAMPLES:
        rendered = example(name)
        for pod in rendered.of_component("worker"):
            if pod.name not in scaled(rendered):
                assert pod.owner["spec"]["replicas"] >= 0


def test_rules_and_dashboards_are_those_of_deploy_observe() -> None:
    rendered = example("observe")
    (rules,) = rendered.of("PrometheusRule")
    ours = yaml.safe_load((OBSERVE / "rules.yml").read_text())
    for group, same in zip(rules["spec"]["groups"], ours["groups"], strict=True):
        for rule, one in zip(group["rules"], same["rules"], strict=True):
            if one["alert"] == "ProgramIsDown":
                assert (one["expr"], rule["expr"] != EVERYTHING) == (EVERYTHING, True)
                assert f"namespace='{NAMESPACE}'" in rule["expr"], "a cluster's Prometheus has other targets too"
                assert jobs_in(rule["expr"]) == {pod.component for pod in rendered.pods if not pod.ends}
                one["expr"] = rule["expr"]
    assert rules["spec"] == ours
    held = [
        json.loads(text)
        for one in rendered.of("ConfigMap")
        for key, text in one.get("data", {}).items()
        if key.endswith(".json") and '"panels"' in text
    ]
    source = yaml.safe_load(FILES["observe"].read_text())["observe"]["datasource"]
    wanted = json.loads(json.dumps(dashboards()).replace('"uid": "signalbox"', f'"uid": "{source}"'))
    assert sorted(held, key=lambda each: str(each["uid"])) == sorted(wanted, key=lambda each: str(each["uid"]))
    assert (CHART / "files" / "observe").is_symlink()


def test_prometheus_finds_every_program_under_the_name_that_dashboards_ask_for() -> None:
    rendered = example("observe")
    found: dict[str, set[int]] = {}
    for monitor in rendered.of("PodMonitor"):
        spec = monitor["spec"]
        assert spec["jobLabel"] == COMPONENT
        for pod in rendered.pods:
            if selects(spec["selector"], pod.labels):
                ports = {port: number for one in pod.containers for port, number in one.ports.items()}
                scraped = {ports[end["port"]] for end in spec["podMetricsEndpoints"] if end["port"] in ports}
                found.setdefault(pod.component, set()).update(scraped)
    found = {component: ports for component, ports in found.items() if ports}
    metrics = {
        pod.component: {n for one in pod.containers for p, n in one.ports.items() if p.startswith("metrics")}
        for pod in rendered.pods
        if not pod.ends
    }
    assert found == metrics
    assert jobs_in(json.dumps(dashboards())) <= set(found)


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"keda", "observe"}))
def test_nothing_is_there_that_a_bare_cluster_does_not_know(name: str) -> None:
    known = {one["apiVersion"] for one in example(name).manifests}
    assert known <= {"v1", "apps/v1", "batch/v1", "policy/v1", "networking.k8s.io/v1"}
