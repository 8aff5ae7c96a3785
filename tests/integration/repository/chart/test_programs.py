"""What the chart runs, sets, mounts and asks is what our programs have, read and answer."""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from signalbox.ops.ports import HOST, free_port
from signalbox.program import metrics
from tests.rigs.chart import POD_ADDRESS, Container
from tests.rigs.containers import run, taken, untaken
from tests.rigs.helm import EXAMPLES, ROOT, example, render, values_of

WRITER = "tyk-apps"
"""What writes Tyk's definitions with the plugin's secret, before Tyk begins."""
TEMPORARY = "/tmp"  # noqa: S108  of a container
TYK: dict[str, Any] = json.loads((ROOT / "tyk" / "tyk.conf").read_text())
API: dict[str, Any] = json.loads((ROOT / "tyk" / "apps" / "signalbox.json").read_text())
HELLO: dict[str, Any] = json.loads((ROOT / "tyk" / "apps" / "hello.json").read_text())
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
COMPONENTS = {"gateway", "worker", "console", "controller", "projector", "outbound", "topology", "bootstrap"}
NO_SETTINGS = {"POD_NAME", "POD_IP", "GOMEMLIMIT"}
"""Variables that are no setting of a program of ours."""
_checked: dict[str, str] = {}


def said_by(name: str, container: Container, secrets: Path) -> str:
    """What the program says it runs with; asked once for each environment there is."""
    environment = {key: container.local(value, secrets) for key, value in example(name).environment(container).items()}
    asked = json.dumps([container.argv, environment])
    if asked not in _checked:
        said = taken(container.argv, environment, secrets.parent)
        if container.pod.component == "worker":
            said += said_by_workers(environment)
        _checked[asked] = said
    return _checked[asked]


def said_by_workers(environment: Mapping[str, str]) -> str:
    """What workers say that the agent starts with its environment, without asking for their device."""
    from signalbox.program.settings import describe, load
    from workers.settings import PREFIX, WorkerSettings

    inherited = {key: text for key, text in environment.items() if not key.startswith("SIGNALBOX_HOST_")}
    return describe(load(WorkerSettings, PREFIX, inherited), PREFIX)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_program_that_a_deployment_has_is_there(name: str) -> None:
    rendered = example(name)
    assert {pod.component for pod in rendered.pods} == COMPONENTS
    for pod in rendered.pods:
        main = "plugin" if pod.component == "gateway" else pod.component
        assert pod.container(main).is_ours
    assert not rendered.of("Secret"), "secrets are made by who installs it, and named"


@pytest.mark.parametrize("name", EXAMPLES)
def test_commands_exist_and_take_every_variable(name: str, secrets: Path) -> None:
    for container in example(name).containers:
        environment = example(name).environment(container)
        if not container.is_ours or WRITER in container.argv:
            continue
        said = said_by(name, container, secrets)
        assert untaken(environment, said) <= NO_SETTINGS, container.name
        for secret in secrets.iterdir():
            if not secret.suffix and secret.is_file():
                assert secret.read_text() not in said


@pytest.mark.parametrize("name", EXAMPLES)
def test_ports_are_those_the_programs_listen_on(name: str) -> None:
    rendered = example(name)
    for container in rendered.containers:
        listened = listening(container, rendered.environment(container))
        declared = set(container.ports.values())
        assert declared <= set(listened), f"{container.name}: nothing listens on {declared - set(listened)}"
        reachable = {port for port, host in listened.items() if host not in {"127.0.0.1", "localhost"}}
        assert reachable <= declared, f"{container.name}: {reachable - declared} is told nobody"


def listening(container: Container, environment: Mapping[str, str]) -> dict[int, str]:
    """The ports that a container opens, and for whom: a host as settings have it."""
    if container.spec["name"] == "tyk":
        return {API["listen_port"]: "", TYK["listen_port"]: "127.0.0.1", TYK["control_api_port"]: "127.0.0.1"}
    if container.ends:
        return {}
    found = {
        int(address.rpartition(":")[2]): address.rpartition(":")[0]
        for variable, address in environment.items()
        if variable.endswith("_LISTEN") and address
    }
    first = int(environment.get("SIGNALBOX_METRICS_PORT", "0"))
    if first:
        found |= dict.fromkeys(
            range(first, first + 1 + workers_of(container, environment)), environment["SIGNALBOX_METRICS_HOST"]
        )
    return found


def workers_of(container: Container, environment: Mapping[str, str]) -> int:
    """How many workers an agent keeps, each with metrics of its own on the next port; 0 = it is no agent."""
    if container.pod.component != "worker":
        return 0
    return devices_of(container, environment) * int(environment["SIGNALBOX_HOST_PER_DEVICE"])


def devices_of(container: Container, environment: Mapping[str, str]) -> int:
    """Devices of a worker's pod: those that are named, or the GPUs that it asks for."""
    named = [each for each in environment["SIGNALBOX_HOST_DEVICES"].split(",") if each]
    limits = container.spec["resources"]["limits"]
    return len(named) or sum(int(number) for resource, number in limits.items() if "/" in resource)


@pytest.mark.parametrize("name", EXAMPLES)
def test_paths_that_programs_write_are_on_volumes(name: str) -> None:
    for container in example(name).containers:
        environment = example(name).environment(container)
        if not container.is_ours:
            continue
        assert "emptyDir" in container.mounts[TEMPORARY][1], f"{container.name}: Python writes temporary files"
        for variable, path in environment.items():
            if not path.startswith("/") or variable.endswith("_FILE"):
                continue
            at = container.mount_of(path)
            if re.search(r"_(DATA|LOCK|CACHE|STAGING)_DIR\Z", variable):
                assert at, f"{container.name}: {variable}={path} is on the image's own file system"
                assert not container.mounts[at][0].get("readOnly"), f"{container.name}: {variable}={path}"
            assert at or f" {path}" in DOCKERFILE, f"{container.name}: {variable}={path} is nowhere"


@pytest.mark.parametrize("name", EXAMPLES)
def test_volumes_are_of_what_there_is_and_are_used(name: str) -> None:
    rendered = example(name)
    for pod in rendered.pods:
        used = {mount["name"] for one in pod.containers for mount in one.spec.get("volumeMounts", ())}
        assert used == set(pod.volumes), pod.name
        for volume in pod.volumes.values():
            sources = [volume, *volume.get("projected", {}).get("sources", ())]
            for one in (source["configMap"] for source in sources if "configMap" in source):
                held = rendered.named("ConfigMap")[one["name"]]
                assert {item["key"] for item in one.get("items", ())} <= set(held["data"]), pod.name


@pytest.mark.parametrize("name", EXAMPLES)
def test_probes_ask_for_what_the_program_answers(name: str, answered: Mapping[str, int]) -> None:
    for container in example(name).containers:
        if container.ends:
            assert not container.probes, container.name
            continue
        assert set(container.probes) == {"startup", "readiness", "liveness"}, container.name
        for kind, probe in container.probes.items():
            asked(container, kind, probe, answered)
        startup = container.probes["startup"]
        assert startup["failureThreshold"] * startup.get("periodSeconds", 10) >= 60, container.name


def asked(container: Container, kind: str, probe: Mapping[str, Any], answered: Mapping[str, int]) -> None:
    """One probe asks for what there is."""
    from django.urls import resolve

    if "exec" in probe:
        command = probe["exec"]["command"]
        reported = run([sys.executable, *command[1:3], "--help"], dict(os.environ), ROOT).stdout
        assert all(option in reported for option in command[3:])
        return
    what = probe["httpGet"]
    port = container.ports.get(what["port"], what["port"])
    if container.spec["name"] == "tyk":
        assert (port, what["path"]) == (HELLO["listen_port"], HELLO["proxy"]["listen_path"])
    elif port == container.ports.get("metrics"):
        assert answered[what["path"]] in {200, 503}, f"{container.name}: {kind} {what['path']}"
        assert (what["path"] == "/livez") == (kind != "readiness"), f"{container.name}: {kind}"
    else:
        assert container.pod.component == "console"
        assert resolve(what["path"]).view_name == "health"


@pytest.fixture(scope="session")
def answered() -> Mapping[str, int]:
    """The status of each path that the port of metrics answers without metrics."""
    port = metrics.serve(free_port(), host=HOST)
    found = {}
    for path in ("/readyz", "/livez"):
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=10) as answer:
                body, found[path] = answer.read(), answer.status
        except urllib.error.HTTPError as error:
            body, found[path] = error.read(), error.code
        assert b"# HELP" not in body, f"{path}: metrics, which say nothing of the program"
    return found


def test_metrics_of_each_program_are_served_to_prometheus() -> None:
    rendered = example("observe")
    for pod in rendered.pods:
        if pod.ends:
            continue
        main = pod.container("plugin" if pod.component == "gateway" else pod.component)
        environment = rendered.environment(main)
        assert environment["SIGNALBOX_METRICS_HOST"] == POD_ADDRESS, pod.name
        assert main.ports["metrics"] == int(environment["SIGNALBOX_METRICS_PORT"])


KEPT = {
    "recordsS": "SIGNALBOX_RECORDS_KEPT_S",
    "resultsS": "SIGNALBOX_RESULTS_KEPT_S",
    "syncResultsS": "SIGNALBOX_SYNC_RESULTS_KEPT_S",
    "deadLettersS": "SIGNALBOX_DEAD_LETTERS_KEPT_S",
    "historyS": "SIGNALBOX_HISTORY_KEPT_S",
    "endsS": "SIGNALBOX_ENDS_KEPT_S",
    "filesS": "SIGNALBOX_FILES_KEPT_S",
}


def test_what_is_said_once_reaches_every_program() -> None:
    given = [argument for key in KEPT for argument in ("--set", f"kept.{key}=7777")]
    more = (
        "--set",
        "webhooks.plain=true",
        "--set",
        "logLevel=DEBUG",
        "--set-json",
        'webhooks.networks=["10.9.0.0/16"]',
    )
    rendered = render(*values_of("small"), *given, *more)
    wanted = dict.fromkeys(KEPT.values(), "7777") | {
        "SIGNALBOX_WEBHOOK_PLAIN": "on",
        "SIGNALBOX_WEBHOOK_NETWORKS": "10.9.0.0/16",
        "SIGNALBOX_LOG_LEVEL": "DEBUG",
    }
    for container in rendered.containers:
        if container.is_ours and WRITER not in container.argv:
            environment = rendered.environment(container)
            assert {key: environment[key] for key in wanted} == wanted, container.name


def test_what_no_value_says_is_the_program_s_own_default() -> None:
    from console.config import ConsoleSettings
    from signalbox.ops.host.settings import HostSettings
    from workers.settings import WorkerSettings

    console, worker, host = ConsoleSettings(), WorkerSettings(), HostSettings()
    rendered = example("small")
    of_worker = rendered.environment(rendered.pod("worker").container("worker"))
    of_console = rendered.environment(rendered.pod("console").container("console"))
    for key, variable in KEPT.items():
        field = variable.removeprefix("SIGNALBOX_").lower()
        assert float(of_worker[variable]) == getattr(worker, field), key
    assert float(of_worker["SIGNALBOX_WORKER_DRAIN_S"]) == worker.drain_s
    assert float(of_worker["SIGNALBOX_HOST_STOP_S"]) == host.stop_s
    assert int(of_worker["SIGNALBOX_HOST_PER_DEVICE"]) == host.per_device
    assert float(of_console["SIGNALBOX_CONSOLE_JOBS_KEPT_DAYS"]) == console.jobs_kept_days
    assert int(of_console["SIGNALBOX_CONSOLE_JOBS_KEPT_ROWS"]) == console.jobs_kept_rows
