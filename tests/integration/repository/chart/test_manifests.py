"""Every example is rendered to what Kubernetes takes, in two of its versions, and every value is documented."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from kubernetes_validate import utils as kubernetes

from signalbox import __version__
from tests.rigs import customresources
from tests.rigs.chart import NAMESPACE
from tests.rigs.helm import CHART, EXAMPLES, example, helm

VERSIONS = ("1.30", "1.37")
"""The oldest that the chart is for, and the newest whose schemas there are."""
WANTED = {"small", "existing-tyk", "gpu", "keda", "observe"}
OF_OTHERS = ("global", "resources")
"""Values that are as Helm and Kubernetes have them."""
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def test_there_is_an_example_for_each_task() -> None:
    assert set(EXAMPLES) >= WANTED


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_manifest(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "schema_contents", cache(kubernetes.schema_contents))  # read anew each time else
    every = {json.dumps(one): one for name in EXAMPLES for one in example(name).manifests}
    for manifest in every.values():
        if manifest["kind"] not in customresources.SCHEMAS:
            try:
                kubernetes.validate(manifest, version, strict=True)
            except kubernetes.ValidationError as error:
                pytest.fail(f"{manifest['metadata']['name']}: {list(error.path)}: {error.message}")


def test_the_oldest_version_is_the_one_that_the_chart_asks_for() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"].startswith(f">={VERSIONS[0]}.")
    assert kubernetes.major_minor(kubernetes.latest_version()) == VERSIONS[1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_not_kubernetes_own_is_as_its_operators_take_it(name: str) -> None:
    for manifest in example(name).of(*customresources.SCHEMAS):
        customresources.read(manifest)


@pytest.mark.parametrize("name", EXAMPLES)
def test_manifests_have_a_name_each_and_the_labels_of_the_release(name: str) -> None:
    manifests = example(name).manifests
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests]
    assert len(set(names)) == len(names)
    for one in manifests:
        metadata = one["metadata"]
        assert len(metadata["name"]) <= 63
        assert metadata.get("namespace", NAMESPACE) == NAMESPACE
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm", metadata["name"]
        assert metadata["labels"]["app.kubernetes.io/version"] == __version__


def test_helm_finds_nothing_to_complain_of() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["apiVersion"] == "v2"
    assert chart["name"] == "signalbox"
    assert chart["appVersion"] == __version__


def leaves(node: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Paths of values that are no mapping, or an empty one."""
    for key, value in node.items():
        path = f"{above}.{key}".lstrip(".")
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path


def properties(schema: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every property that a schema declares by name, with its path."""
    for key, one in schema.get("properties", {}).items():
        if key in OF_OTHERS:
            continue
        path = f"{above}.{key}".lstrip(".")
        yield path, one
        yield from properties(resolved(one), path)


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the one it refers to."""
    reference = schema.get("$ref", "")
    found: Any = SCHEMA
    for part in reference.split("/")[1:]:
        found = found[part]
    return found if reference else schema


def test_every_value_is_in_the_schema_which_says_what_it_is() -> None:
    declared = dict(properties(SCHEMA))
    for path, schema in declared.items():
        assert schema.get("description") or resolved(schema).get("description"), path
    for path in leaves(VALUES):
        assert path in declared or is_open(path.split(".")), f"{path} is not in the schema"


def test_every_part_of_the_values_has_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    said = {
        key[1]
        for before, line in zip(["", *lines], lines, strict=False)
        if (key := re.match(r"\s*([\w-]+):", line)) and ("#" in line or before.lstrip().startswith("#"))
    }
    for part, values in VALUES.items():
        assert said & ({part} | set(values if isinstance(values, Mapping) else ())), part


def is_open(parts: list[str]) -> bool:
    """Whether a value lies below one whose names its user gives, as those of classes are."""
    schema: Any = SCHEMA
    for part in parts:
        schema = resolved(schema)
        if part in OF_OTHERS:
            return True
        if part not in schema.get("properties", {}):
            return isinstance(schema.get("additionalProperties"), Mapping) or "patternProperties" in schema
        schema = schema["properties"][part]
    return True


def test_the_schema_refuses_what_it_does_not_know() -> None:
    for path, schema in [("", SCHEMA), *properties(SCHEMA)]:
        found = resolved(schema)
        if found.get("type") == "object":
            assert "additionalProperties" in found, path or "the values"
            assert found["additionalProperties"] is not True, path


def test_every_value_is_used_by_a_template() -> None:
    templates = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    for path in {path for path, _ in properties(SCHEMA)}:
        assert re.search(rf"\b{re.escape(path.rpartition('.')[2])}\b", templates), path
