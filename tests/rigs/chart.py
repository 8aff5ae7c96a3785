"""Ways through what helm has rendered: pods, their containers, what these see and are told."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

RELEASE: Final = "sb"
NAMESPACE: Final = "signalbox"
COMPONENT: Final = "app.kubernetes.io/component"
_ONCE: Final = "Job"
_KEPT: Final = ("Deployment", "StatefulSet")
_REFERENCE: Final = re.compile(r"\$\((\w+)\)")
SEED: Final = "nats_seed"
POD_ADDRESS: Final = "10.1.0.9"
_DOWNWARD: Final = {"metadata.name": f"{RELEASE}-pod-0", "status.podIP": POD_ADDRESS}
Manifest = dict[str, Any]


class Container(NamedTuple):
    """A container of a pod. ends: it does one task, before others begin or as the pod's only one."""

    pod: "Pod"
    spec: Mapping[str, Any]
    ends: bool

    @property
    def name(self) -> str:
        """The pod's component and its own name."""
        return f"{self.pod.component}/{self.spec['name']}"

    @property
    def is_ours(self) -> bool:
        """Whether it runs a program of ours."""
        return self.argv[:2] == ("python", "-m")

    @property
    def argv(self) -> tuple[str, ...]:
        """What it runs; empty = what the image says."""
        return (*self.spec.get("command", ()), *self.spec.get("args", ()))

    @property
    def ports(self) -> dict[str, int]:
        """Its ports by name."""
        return {port["name"]: port["containerPort"] for port in self.spec.get("ports", ())}

    @property
    def mounts(self) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """By where it is mounted: the mount and its volume."""
        volumes = {**self.pod.volumes}
        return {mount["mountPath"]: (mount, volumes[mount["name"]]) for mount in self.spec.get("volumeMounts", ())}

    def mount_of(self, path: str) -> str:
        """Where the file system begins that a path is on; empty = the image's."""
        above = [each for each in self.mounts if path == each or path.startswith(f"{each}/")]
        return max(above, key=len, default="")

    def key_of(self, path: str) -> str:
        """The key of a Secret that a file is, :data:`SEED` for that of the pod's own key; empty = it is of none."""
        at = self.mount_of(path)
        if not at:
            return ""
        mount, volume = self.mounts[at]
        if "subPathExpr" in mount:
            return SEED if mount["subPathExpr"] == "$(POD_NAME).seed" else ""
        below = mount.get("subPath") or path.removeprefix(at).strip("/")
        for secret in of_secrets(volume):
            keys = {item["path"]: item["key"] for item in secret.get("items", [{"path": below, "key": below}])}
            if below in keys:
                return str(keys[below])
        return ""

    def local(self, value: str, secrets: Path) -> str:
        """The value of a variable where its path is here: a key in the folder of secrets, else the folder above it."""
        if not value.startswith("/"):
            return value
        key = self.key_of(value)
        return str(secrets / key) if key else str(secrets.parent)

    @property
    def probes(self) -> dict[str, Mapping[str, Any]]:
        """Its probes by kind: startup, readiness, liveness."""
        kinds = ("startup", "readiness", "liveness")
        return {kind: self.spec[f"{kind}Probe"] for kind in kinds if f"{kind}Probe" in self.spec}


class Pod(NamedTuple):
    """The template of a workload's pods."""

    owner: Manifest
    template: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of the workload."""
        return str(self.owner["metadata"]["name"])

    @property
    def component(self) -> str:
        """Which program of ours it is."""
        return str(self.labels[COMPONENT])

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the pods."""
        found: Mapping[str, str] = self.template["metadata"]["labels"]
        return found

    @property
    def spec(self) -> Mapping[str, Any]:
        """Of the pods."""
        found: Mapping[str, Any] = self.template["spec"]
        return found

    @property
    def ends(self) -> bool:
        """Whether it does one task and ends."""
        return bool(self.owner["kind"] == _ONCE)

    @property
    def volumes(self) -> dict[str, Mapping[str, Any]]:
        """By name, those of a StatefulSet's claims included."""
        claims = self.owner["spec"].get("volumeClaimTemplates", ())
        claimed = {claim["metadata"]["name"]: {"persistentVolumeClaim": claim["spec"]} for claim in claims}
        return {volume["name"]: volume for volume in self.spec.get("volumes", ())} | claimed

    @property
    def containers(self) -> list[Container]:
        """Those that stay, then those that begin before them. One of these stays too where it is always restarted."""
        first = self.spec.get("initContainers", ())
        return [Container(self, spec, self.ends) for spec in self.spec["containers"]] + [
            Container(self, spec, spec.get("restartPolicy") != "Always") for spec in first
        ]

    def container(self, name: str) -> Container:
        """The one of this name."""
        (found,) = (one for one in self.containers if one.spec["name"] == name)
        return found


class Rendered:
    """What helm has rendered."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self.manifests = manifests

    def of(self, *kinds: str) -> list[Manifest]:
        """Manifests of these kinds."""
        return [one for one in self.manifests if one["kind"] in kinds]

    def named(self, kind: str) -> dict[str, Manifest]:
        """Manifests of a kind by name."""
        return {one["metadata"]["name"]: one for one in self.of(kind)}

    @property
    def pods(self) -> list[Pod]:
        """Those that stay, then those that end."""
        return [Pod(one, one["spec"]["template"]) for one in self.of(*_KEPT) + self.of(_ONCE)]

    def of_component(self, component: str) -> list[Pod]:
        """Pods of one program of ours."""
        return [pod for pod in self.pods if pod.component == component]

    def pod(self, component: str) -> Pod:
        """The only pod of this component."""
        (found,) = self.of_component(component)
        return found

    @property
    def containers(self) -> list[Container]:
        """Of all pods."""
        return [container for pod in self.pods for container in pod.containers]

    def environment(self, container: Container) -> dict[str, str]:
        """The variables as the container has them. What is of an existing Secret is ``of NAME/KEY``."""
        found: dict[str, str] = {}
        for each in container.spec.get("envFrom", ()):
            if "configMapRef" in each:
                found |= self.named("ConfigMap")[each["configMapRef"]["name"]]["data"]
        for each in container.spec.get("env", ()):
            text = each["value"] if "value" in each else self._from(each.get("valueFrom", {"none": {}}))
            assert isinstance(text, str), f"{container.name}: {each['name']} is no text"
            found[each["name"]] = _REFERENCE.sub(lambda match: found[match[1]], text)
        return found

    def _from(self, source: Mapping[str, Any]) -> str:
        ((kind, what),) = source.items()
        if kind == "fieldRef":
            return _DOWNWARD[what["fieldPath"]]
        if kind == "configMapKeyRef":
            return str(self.named("ConfigMap")[what["name"]]["data"][what["key"]])
        if kind == "resourceFieldRef":
            return "1"
        return f"of {what['name']}/{what['key']}" if kind == "secretKeyRef" else ""


def of_secrets(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The Secrets of a volume, by itself or projected with others."""
    if "secret" in volume:
        return [volume["secret"]]
    sources = volume.get("projected", {}).get("sources", ())
    return [source["secret"] for source in sources if "secret" in source]


def texts(node: Any) -> Iterator[str]:
    """Every text in a manifest, keys included."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield str(key)
            yield from texts(value)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for value in node:
            yield from texts(value)
    elif node is not None:
        yield str(node)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels. An empty one takes all, None takes nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(f"no operator of a selector: {expression['operator']}")
