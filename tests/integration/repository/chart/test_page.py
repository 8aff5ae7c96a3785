"""docs/kubernetes.md, and what the chart prints, make the Secrets that pods of it read, by commands that there are."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from signalbox.ops import cli
from signalbox.ops.nats.keys import Keys
from tests.rigs.chart import RELEASE, of_secrets
from tests.rigs.helm import CHART, FILES, ROOT, example, helm, values_of

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
NATS = (ROOT / "deploy" / "nats" / "nats.conf").read_text()


def commands(program: str, page: str = PAGE) -> list[list[str]]:
    """What a page has people run of a program, in words."""
    lines = re.sub(r" \\\n\s+", " ", page).splitlines()
    found = [line.strip() for line in lines if line.startswith("    ")]
    split = [shlex.split(part, comments=True) for line in found for part in re.split(r" && | \| ", line)]
    return [words for words in split if words[: len(program.split())] == program.split()]


def test_the_page_names_every_example() -> None:
    assert set(re.findall(r"examples/([\w-]+)\.yaml", PAGE)) == set(FILES)


def made(secrets: Path) -> dict[str, set[str]]:
    """The Secrets that the page makes, and their keys."""
    found: dict[str, set[str]] = {}
    for words in commands("kubectl create secret generic"):
        keys = found.setdefault(words[4], set())
        for kind, _, what in (option.partition("=") for option in words[5:]):
            if kind == "--from-env-file":
                keys |= {line.partition("=")[0] for line in (secrets / what).read_text().splitlines()}
            else:
                keys.add(Path(what).name if kind == "--from-file" else what.partition("=")[0])
    return found


def read(name: str) -> dict[str, set[str]]:
    """The Secrets that an example reads, and the keys it names of them."""
    rendered = example(name)
    named = [
        (secret.get("secretName") or secret["name"], item["key"])
        for container in rendered.containers
        for _, volume in container.mounts.values()
        for secret in of_secrets(volume)
        for item in secret.get("items", ())
    ]
    every = [text for container in rendered.containers for text in rendered.environment(container).values()]
    for text in every:
        if text.startswith("of "):
            of, _, key = text.removeprefix("of ").partition("/")
            named.append((of, key))
    for one in rendered.of("TriggerAuthentication"):
        named += [(reference["name"], reference["key"]) for reference in one["spec"]["secretTargetRef"]]
    found: dict[str, set[str]] = {}
    for name_of_secret, key in named:
        found.setdefault(name_of_secret, set()).add(key)
    return found


def test_secrets_that_the_page_makes_have_the_keys_that_pods_read(secrets: Path) -> None:
    there = made(secrets)
    for secret, keys in read("keda").items():
        assert there.get(secret) == keys, secret


def test_the_page_makes_every_secret_that_is_mounted_whole(secrets: Path) -> None:
    by_keys = [words[words.index("--secret") + 1] for words in commands("signalbox nats-users") if "--secret" in words]
    for container in example("keda").containers:
        for _, volume in container.mounts.values():
            for secret in of_secrets(volume):
                assert (secret.get("secretName") or secret["name"]) in {*by_keys, *made(secrets)}


def printed(folder: Path, namespace: str, name: str) -> str:
    """What helm prints after an install, which it renders for a cluster alone; so a manifest takes it in."""
    shutil.copytree(CHART, folder)
    (folder / "templates" / "printed.yaml").write_text(
        'printed: {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}\n'
    )
    arguments = [RELEASE, str(folder), "--namespace", namespace, "--show-only", "templates/printed.yaml"]
    done = helm("template", *arguments, *values_of(name))
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["printed"])


def test_what_the_chart_prints_gives_each_pod_of_each_namespace_a_key_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(60)
    seeds: list[str] = []
    for namespace in ("first", "second"):
        asked = commands("signalbox nats-users", printed(tmp_path / namespace, namespace, "keda"))
        assert asked
        for words in asked:
            words[words.index("--keys") + 1] = str(keys.folder)
            assert cli.main(words[1:]) == 0
            manifest = json.loads(capsys.readouterr().out)
            assert manifest["metadata"]["namespace"] == namespace
            seeds += manifest["data"].values()
    most = sum(one["spec"]["maxReplicaCount"] for one in example("keda").of("ScaledObject"))
    assert len(seeds) == len(set(seeds)) == 2 * most


@pytest.mark.parametrize("program", ["signalbox nats-users", "signalbox tyk-apps", "python3 deploy/make_secrets.py"])
def test_options_in_the_page_are_those_of_the_commands(program: str) -> None:
    asked = [words for words in commands("") if "kubectl" not in words and program.rsplit(maxsplit=1)[-1] in words]
    first = ["-m", *program.split()] if program.startswith("signalbox") else [str(ROOT / program.split()[1])]
    done = subprocess.run([sys.executable, *first, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    options = {word for words in asked for word in words if word.startswith("--")}
    assert options
    assert options <= set(re.findall(r"--[\w-]+", done.stdout)), options


def test_nats_of_its_own_chart_is_as_durable_as_that_of_compose() -> None:
    values = yaml.safe_load(FILES["nats"].read_text())
    config = values["config"]
    assert config["jetstream"]["merge"] == {"sync_interval": "always"}
    assert re.search(r"^  sync_interval: always$", NATS, re.MULTILINE)
    assert config["cluster"]["replicas"] == 3
    said = {key: str(value) for key, value in config["merge"].items() if not key.startswith("$")}
    for key, value in said.items():
        assert re.search(rf'^{key}: "?{value}"?$', NATS, re.MULTILINE), key
    assert {"max_payload", "max_pending", "write_deadline", "ping_interval"} <= set(said)
    assert f"nats:{values['container']['image']['tag']}" == COMPOSE["x-nats"]["image"]
    for part in (config["cluster"], config["nats"]):
        assert part["tls"]["enabled"] is True
    assert config["cluster"]["tls"]["merge"]["verify"] is True
