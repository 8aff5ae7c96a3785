"""Pods of the chart have no more rights than they use, leave time to end, and are not all lost with one node."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.rigs.chart import Container, Pod, selects
from tests.rigs.helm import EXAMPLES, ROOT, example

SPREAD = "kubernetes.io/hostname"
UID = 10001
TYK: dict[str, Any] = json.loads((ROOT / "tyk" / "tyk.conf").read_text())


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_container_may_do_more_than_it_must(name: str) -> None:
    for pod in example(name).pods:
        assert pod.spec["automountServiceAccountToken"] is False, pod.name
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert not pod.spec.get(key), f"{pod.name}: {key}"
        for container in pod.containers:
            context = security(container)
            said = {key: context.get(key) for key in ("runAsNonRoot", "readOnlyRootFilesystem")}
            assert said == {"runAsNonRoot": True, "readOnlyRootFilesystem": True}, container.name
            assert context.get("allowPrivilegeEscalation") is False, container.name
            assert not context.get("privileged"), container.name
            assert context["capabilities"] == {"drop": ["ALL"]}, container.name
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}, container.name
            if container.is_ours:
                assert context["runAsUser"] == UID, container.name


def security(container: Container) -> Mapping[str, Any]:
    """A container's security context, with what its pod says for all."""
    return {**container.pod.spec.get("securityContext", {}), **container.spec.get("securityContext", {})}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_container_says_what_it_needs_and_may_take(name: str) -> None:
    for container in example(name).containers:
        resources = container.spec["resources"]
        assert set(resources["requests"]) >= {"cpu", "memory"}, container.name
        assert "memory" in resources["limits"], f"{container.name} could take the node's memory"


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_folder_in_memory_or_on_the_node_s_disk_is_without_a_bound(name: str) -> None:
    for pod in example(name).pods:
        for volume in pod.volumes.values():
            if "emptyDir" in volume:
                assert volume["emptyDir"].get("sizeLimit"), f"{pod.name}: {volume['name']}"
            assert not volume.get("hostPath") or pod.component == "worker", f"{pod.name}: {volume['name']}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_folders_that_programs_close_to_others_are_their_own(name: str) -> None:
    rendered = example(name)
    for container in rendered.containers:
        for variable, path in rendered.environment(container).items():
            if variable in {"SIGNALBOX_HOST_DATA_DIR", "SIGNALBOX_WORKER_CACHE_DIR"}:
                assert container.mount_of(path), f"{container.name}: {variable} is on no volume"
                assert path not in container.mounts, f"{container.name}: {variable}: a volume's own folder is root's"


def test_fetched_models_take_less_than_their_folder_may_have() -> None:
    bounds = {
        pod.name: example("gpu").environment(pod.container("worker"))["SIGNALBOX_WORKER_CACHE_BYTES"]
        for pod in example("gpu").of_component("worker")
    }
    assert bounds["sb-worker-h100"] == str(375 * 1024**3)
    assert bounds["sb-worker-shared"] == str(75 * 1024**3 // 2)


@pytest.mark.parametrize("name", EXAMPLES)
def test_images_are_of_one_version_and_of_targets_there_are(name: str) -> None:
    from signalbox import __version__

    for container in example(name).containers:
        image = container.spec["image"]
        repository, _, tag = image.rpartition(":")
        assert repository, image
        assert tag not in {"", "latest"}, image
        if container.is_ours:
            assert tag.startswith(__version__), image


@pytest.mark.parametrize("name", EXAMPLES)
def test_pods_of_one_program_are_spread_over_nodes(name: str) -> None:
    for pod in example(name).pods:
        if pod.ends:
            continue
        rules = pod.spec["topologySpreadConstraints"]
        assert SPREAD in {rule["topologyKey"] for rule in rules}, pod.name
        for rule in rules:
            assert selects(rule["labelSelector"], pod.labels), f"{pod.name}: of others"
            assert not any(selects(rule["labelSelector"], other.labels) for other in others(name, pod)), pod.name


def others(name: str, pod: Pod) -> list[Pod]:
    """The workloads of an example but this one."""
    return [other for other in example(name).pods if other.owner is not pod.owner]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_node_that_is_drained_takes_one_pod_of_each_program_at_a_time(name: str) -> None:
    rendered = example(name)
    budgets = [budget["spec"] for budget in rendered.of("PodDisruptionBudget")]
    for pod in rendered.pods:
        mine = [budget for budget in budgets if selects(budget["selector"], pod.labels)]
        if pod.ends:
            assert not mine, f"{pod.name} ends by itself, and would hold the drain up"
            continue
        assert len(mine) == 1, pod.name
        assert mine[0].get("maxUnavailable") == 1, f"{pod.name}: with minAvailable one pod could not be drained"
    for budget in budgets:
        assert any(selects(budget["selector"], pod.labels) for pod in rendered.pods), budget


@pytest.mark.parametrize("name", EXAMPLES)
def test_selectors_take_the_pods_of_their_workload_and_no_others(name: str) -> None:
    rendered = example(name)
    for pod in rendered.pods:
        if pod.ends:
            continue
        selector = pod.owner["spec"]["selector"]
        assert selects(selector, pod.labels), pod.name
        assert not any(selects(selector, other.labels) for other in others(name, pod)), pod.name
    for service in rendered.of("Service"):
        found = [pod for pod in rendered.pods if selects({"matchLabels": service["spec"]["selector"]}, pod.labels)]
        assert len({pod.component for pod in found}) == 1, service["metadata"]["name"]
        named = {port for one in found[0].containers for port in one.ports}
        assert {port["targetPort"] for port in service["spec"].get("ports", ())} <= named, service["metadata"]["name"]
    accounts = rendered.named("ServiceAccount")
    for pod in rendered.pods:
        assert pod.spec["serviceAccountName"] in accounts, pod.name
    for account in accounts.values():
        assert account["automountServiceAccountToken"] is False
    assert not rendered.of("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), "no program asks the API server"


@pytest.mark.parametrize("name", EXAMPLES)
def test_time_to_stop_covers_what_the_programs_ask_for(name: str) -> None:
    from gateway_plugin.outbound.settings import OutboundSettings
    from gateway_plugin.settings import GatewaySettings
    from signalbox.ops.host.settings import HostSettings
    from workers.settings import WorkerSettings

    rendered = example(name)

    def grace(component: str) -> list[float]:
        return [
            pod.spec.get("terminationGracePeriodSeconds", 30) - before(pod) for pod in rendered.of_component(component)
        ]

    stops = HostSettings().stop_s
    assert stops > WorkerSettings().drain_s
    assert min(grace("worker")) > stops
    plugin = GatewaySettings(listen="", edge_listen="127.0.0.1:1")
    assert min(grace("gateway")) > plugin.drain_s + tyk_drain(rendered), "Tyk ends its calls, then the plugin ends"
    assert min(grace("outbound")) >= OutboundSettings().hook_total_s
    for component in ("console", "controller", "projector"):
        assert min(grace(component)) >= 30


def before(pod: Pod) -> float:
    """Seconds that the longest preStop of a pod takes of the grace period."""
    stops = [one.spec.get("lifecycle", {}).get("preStop", {}) for one in pod.containers]
    return max((stop.get("sleep", {}).get("seconds", 0) for stop in stops), default=0)


def tyk_drain(rendered: Any) -> float:
    """Seconds that Tyk takes to end, where it is in the pod."""
    tyk = [one for one in rendered.containers if one.spec["name"] == "tyk"]
    return float(TYK["graceful_shutdown_timeout_duration"]) if tyk else 0.0


def test_an_upgrade_has_no_moment_without_a_gateway() -> None:
    for name in EXAMPLES:
        for component in ("gateway", "console", "outbound"):
            for pod in example(name).of_component(component):
                strategy = pod.owner["spec"].get("strategy", {})
                assert strategy.get("type", "RollingUpdate") == "RollingUpdate", pod.name
                assert strategy.get("rollingUpdate", {}).get("maxUnavailable", "25%") in {0, "25%"}, pod.name


def test_workers_of_a_class_ask_for_the_gpus_of_their_devices() -> None:
    rendered = example("gpu")
    found = 0
    for pod in rendered.of_component("worker"):
        container = pod.container("worker")
        devices = rendered.environment(container).get("SIGNALBOX_HOST_DEVICES", "")
        limits = container.spec["resources"]["limits"]
        gpus = {key: int(value) for key, value in limits.items() if "/" in key}
        if not devices or devices.startswith("gpu"):
            assert sum(gpus.values()) >= 1, pod.name
            assert not devices or sum(gpus.values()) == len(devices.split(",")), pod.name
            found += 1
        else:
            assert not gpus, pod.name
    assert found
