"""Tyk in the gateway's pod runs with the files of tyk/, and calls the plugin beside it."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.containers import run
from tests.rigs.helm import EXAMPLES, ROOT, example

TYK: dict[str, Any] = json.loads((ROOT / "tyk" / "tyk.conf").read_text())
API: dict[str, Any] = json.loads((ROOT / "tyk" / "apps" / "signalbox.json").read_text())
HELLO: dict[str, Any] = json.loads((ROOT / "tyk" / "apps" / "hello.json").read_text())
APIS: list[dict[str, Any]] = [json.loads(path.read_text()) for path in (ROOT / "tyk" / "apps").glob("*.json")]
WRITER = "tyk-apps"
"""What writes Tyk's definitions with the plugin's secret, before Tyk begins."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_variables_for_tyk_name_fields_of_its_configuration(name: str) -> None:
    fields = {"TYK_GW_" + key.replace("_", "").upper() for key in TYK}
    fields |= {"TYK_GW_STORAGE_" + key.replace("_", "").upper() for key in TYK["storage"]}
    more = {"TYK_GW_STORAGE_PASSWORD", "TYK_GW_STORAGE_USERNAME", "TYK_GW_STORAGE_USESSL", "TYK_GW_STORAGE_ADDRS"}
    for container in example(name).containers:
        if container.spec["name"] == "tyk":
            assert set(example(name).environment(container)) <= fields | more | {"GOMEMLIMIT"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_tyk_finds_the_plugin_of_its_own_pod_alone(name: str) -> None:
    rendered = example(name)
    pod = rendered.pod("gateway")
    plugin = rendered.environment(pod.container("plugin"))
    is_here = any(one.spec["name"] == "tyk" for one in pod.containers)
    variables = ("LISTEN", "GRPC_LISTEN", "UPSTREAM_LISTEN")
    listened = {variable: plugin[f"SIGNALBOX_GATEWAY_{variable}"] for variable in variables}
    hooks = re.fullmatch(r"dns:///(\w+):(\d+)", TYK["coprocess_options"]["coprocess_grpc_server"])
    assert hooks is not None
    assert listened["LISTEN"].endswith(f":{hooks[2]}")
    targets = {api["proxy"]["target_url"].rpartition("//")[2] for api in APIS if api not in (HELLO, API)}
    others = {f"{hooks[1]}:{listened[name].rpartition(':')[2]}" for name in ("GRPC_LISTEN", "UPSTREAM_LISTEN")}
    assert others == targets
    if is_here:
        assert {each.rpartition(":")[0] for each in listened.values()} == {"127.0.0.1"}, "in plain text, between hosts"
        assert {"ip": "127.0.0.1", "hostnames": [hooks[1]]} in pod.spec["hostAliases"]
        assert plugin.get("SIGNALBOX_GATEWAY_ALLOW_REMOTE", "off") == "off"
    else:
        assert plugin["SIGNALBOX_GATEWAY_ALLOW_REMOTE"] == "on"


@pytest.mark.parametrize("name", EXAMPLES)
def test_tyk_s_files_are_ours_and_the_definitions_hold_the_secret(name: str, secrets: Path, tmp_path: Path) -> None:
    rendered = example(name)
    pod = rendered.pod("gateway")
    if not any(one.spec["name"] == "tyk" for one in pod.containers):
        return
    tyk = pod.container("tyk")
    held = {key: text for one in rendered.of("ConfigMap") for key, text in one.get("data", {}).items()}
    assert json.loads(held["tyk.conf"]) == TYK
    for path in (ROOT / "tyk" / "templates").iterdir():
        assert held[path.name].strip() == path.read_text().strip()
    (writer,) = (one for one in pod.containers if WRITER in one.argv)
    folder = writer.argv[-1]
    written, read = writer.mount_of(folder), tyk.mount_of("/opt/tyk-gateway/apps")
    assert "emptyDir" in writer.mounts[written][1]
    assert writer.mounts[written][1] == tyk.mounts[read][1], "Tyk reads what was written"
    environment = rendered.environment(writer)
    here = {key: writer.local(value, secrets) for key, value in environment.items()}
    run([sys.executable, *writer.argv[1:-1], str(tmp_path)], {**os.environ, **here}, tmp_path)
    for path in (ROOT / "tyk" / "apps").iterdir():
        assert json.loads((tmp_path / path.name).read_text()) == json.loads(
            (secrets / "tyk_apps" / path.name).read_text()
        )
