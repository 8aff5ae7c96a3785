"""Each pod of the chart sees the secrets of its own program, connects as its user, and no manifest holds a secret."""

import re
from pathlib import Path

import pytest

from signalbox.wire.roles import queue_role
from tests.rigs.chart import of_secrets, texts
from tests.rigs.helm import EXAMPLES, example, render, values_of

USERS = {
    "gateway": "gateway",
    "console": "console",
    "controller": "console",
    "projector": "console",
    "outbound": "outbound",
    "topology": "admin",
}
"""The NATS user of each program; a worker's is the name of its key, and bootstrap asks no NATS."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_files_that_are_read_are_keys_that_make_secrets_makes(name: str, secrets: Path) -> None:
    made = {path.name for path in secrets.iterdir()} | {"nats_seed"}
    tyk = {line.partition("=")[0] for line in (secrets / "tyk.env").read_text().splitlines()}
    for container in example(name).containers:
        environment = example(name).environment(container)
        for variable, path in environment.items():
            if variable.endswith("_FILE") and path.startswith("/"):
                key = container.key_of(path)
                assert key in made, f"{container.name}: {variable}={path} is {key or 'on no mounted Secret'}"
            elif path.startswith("of "):
                assert path.partition("/")[2] in made | tyk, f"{container.name}: {variable}"
                assert container.spec["name"] == "tyk", "ours read files: a variable is seen by who may see the pod"


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_program_sees_a_secret_of_another(name: str) -> None:
    seen: dict[str, set[str]] = {}
    for container in example(name).containers:
        for _, volume in container.mounts.values():
            for secret in of_secrets(volume):
                seen.setdefault(secret.get("secretName") or secret["name"], set()).add(container.pod.component)
    console = {"console", "controller", "projector", "bootstrap"}
    for held, components in seen.items():
        assert len(components) == 1 or components <= console or is_for_all(name, held), f"{held}: {components}"


def is_for_all(name: str, held: str) -> bool:
    """Whether only what is no secret is mounted of it (authorities), or it holds credentials of repositories."""
    keys: set[str] = set()
    for container in example(name).containers:
        for _, volume in container.mounts.values():
            for one in of_secrets(volume):
                if (one.get("secretName") or one["name"]) == held:
                    keys |= {item["key"] for item in one.get("items", [{"key": "all"}])}
    return keys == {"tls_ca"} or "repositor" in held


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pod_of_workers_sees_the_seed_of_its_own_key_alone(name: str) -> None:
    for pod in example(name).of_component("worker"):
        container = pod.container("worker")
        at = container.mount_of(example(name).environment(container)["SIGNALBOX_NATS_SEED_FILE"])
        mount, _ = container.mounts[at]
        assert mount["subPathExpr"] == "$(POD_NAME).seed", pod.name
        assert mount["readOnly"] is True
        seeds = {secret.get("secretName") for secret in of_secrets(container.mounts[at][1])}
        for where, (other, volume) in container.mounts.items():
            if where != at:
                assert not seeds & {one.get("secretName") for one in of_secrets(volume)}, other


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_program_connects_as_the_user_of_its_role(name: str) -> None:
    for container in example(name).containers:
        environment = example(name).environment(container)
        component = container.pod.component
        if not container.is_ours or component in {"worker", "bootstrap"} or container.ends:
            continue
        user = USERS[component]
        assert environment["SIGNALBOX_NATS_USER"] == user, container.name
        assert container.key_of(environment["SIGNALBOX_NATS_PASSWORD_FILE"]) == f"nats_{user}"
        queues = queue_role(user)
        assert environment.get("SIGNALBOX_QUEUES_NATS_USER", "") == queues
        if queues:
            assert container.key_of(environment["SIGNALBOX_QUEUES_NATS_PASSWORD_FILE"]) == f"nats_{queues}"
        assert environment["SIGNALBOX_NATS_URL"].startswith("tls://"), "jobs cross hosts"


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_secret_and_no_place_of_ours_is_in_a_manifest(name: str) -> None:
    for manifest in example(name).manifests:
        for text in texts(manifest):
            assert not re.search(r"postgres(ql)?://[^@\s]*:[^@\s]*@|BEGIN [A-Z ]*PRIVATE KEY", text), manifest["kind"]


@pytest.mark.parametrize(
    ("component", "name", "setting"),
    [
        ("gateway", "plugin", "SIGNALBOX_GATEWAY_PREVIOUS_KEY_PEPPER"),
        ("console", "console", "SIGNALBOX_CONSOLE_OIDC_CLIENT_SECRET"),
        ("outbound", "outbound", "SIGNALBOX_OUTBOUND_TRACES_HEADERS"),
    ],
)
def test_a_further_secret_of_a_program_is_read_from_its_own_secret(component: str, name: str, setting: str) -> None:
    rendered = render(*values_of("small"), "--set", f"{component}.secretEnv.{setting}=more")
    container = rendered.pod(component).container(name)
    environment = rendered.environment(container)
    assert setting not in environment
    at = environment[f"{setting}_FILE"]
    assert container.key_of(at) == "more"
    (secret,) = (one for one in of_secrets(container.mounts[container.mount_of(at)][1]) if "more" in str(one))
    assert secret["name"] == f"signalbox-{component}"
