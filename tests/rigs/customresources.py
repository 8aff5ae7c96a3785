"""Schemas of the resources in our chart that are not Kubernetes' own: KEDA's and the Prometheus operator's.

A field that is not known here is refused, as a strict API server refuses it, so only what the chart uses is here.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tests.rigs.chart import Manifest

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
Duration = Annotated[str, Meta(pattern=r"^(\d+(ms|s|m|h|d))+$")]
Count = Annotated[int, Meta(ge=0)]


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of a resource, all of whose fields are known."""


class Metadata(Known, frozen=True, kw_only=True):
    """Of every resource."""

    name: Name
    namespace: Name = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Target(Known, frozen=True, kw_only=True):
    """The workload that KEDA scales."""

    name: Name
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    api_version: Literal["apps/v1"] = "apps/v1"


class MetricsApi(Known, frozen=True, kw_only=True):
    """Asks a URL for a number. All values are texts, as KEDA's schema has them."""

    url: Annotated[str, Meta(pattern="^https?://")]
    value_location: str
    target_value: Annotated[str, Meta(pattern=r"^\d+(\.\d+)?$")]
    activation_target_value: Annotated[str, Meta(pattern=r"^\d+(\.\d+)?$")] = "0"
    format: Literal["json"] = "json"
    auth_mode: Literal["bearer"]
    unsafe_ssl: Literal["false", "true"] = "false"


class AuthenticationRef(Known, frozen=True, kw_only=True):
    """Which authentication a trigger takes."""

    name: Name
    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] = "TriggerAuthentication"


class Trigger(Known, frozen=True, kw_only=True):
    """What KEDA asks."""

    type: Literal["metrics-api"]
    name: str = ""
    metadata: MetricsApi
    authentication_ref: AuthenticationRef
    metric_type: Literal["AverageValue", "Value"] = "AverageValue"


class ScalingRules(Known, frozen=True, kw_only=True):
    """One way of an autoscaler's behaviour."""

    stabilization_window_seconds: Annotated[int, Meta(ge=0, le=3600)] = 0
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"
    policies: tuple[dict[str, Any], ...] = ()


class Behavior(Known, frozen=True, kw_only=True):
    """Both ways of it."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class Autoscaler(Known, frozen=True, kw_only=True):
    """What KEDA says to the autoscaler that it makes."""

    name: Name = ""
    behavior: Behavior | None = None


class Advanced(Known, frozen=True, kw_only=True):
    """Of a scaled object."""

    restore_to_original_replica_count: bool = False
    horizontal_pod_autoscaler_config: Autoscaler | None = None


class Fallback(Known, frozen=True, kw_only=True):
    """Where the trigger has failed so often: so many replicas."""

    failure_threshold: Annotated[int, Meta(ge=1)]
    replicas: Count
    behavior: Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"] = "static"


class Scaled(Known, frozen=True, kw_only=True):
    """What a scaled object asks for."""

    scale_target_ref: Target
    polling_interval: Annotated[int, Meta(ge=1)] = 30
    cooldown_period: Count = 300
    initial_cooldown_period: Count = 0
    min_replica_count: Count = 0
    max_replica_count: Annotated[int, Meta(ge=1)] = 100
    advanced: Advanced | None = None
    fallback: Fallback | None = None
    triggers: Annotated[tuple[Trigger, ...], Meta(min_length=1)]


class ScaledObject(Known, frozen=True, kw_only=True):
    """KEDA's: how many pods a workload has."""

    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    metadata: Metadata
    spec: Scaled


class OfSecret(Known, frozen=True, kw_only=True):
    """A parameter of a trigger, from a key of a Secret."""

    parameter: Literal["token"]
    name: Name
    key: str


class Authentication(Known, frozen=True, kw_only=True):
    """What a trigger authenticates with."""

    secret_target_ref: Annotated[tuple[OfSecret, ...], Meta(min_length=1)]


class TriggerAuthentication(Known, frozen=True, kw_only=True):
    """KEDA's: what triggers authenticate with."""

    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["TriggerAuthentication"]
    metadata: Metadata
    spec: Authentication


class Alert(Known, frozen=True, kw_only=True):
    """A rule of Prometheus that tells of something."""

    alert: str
    expr: str
    for_: Annotated[Duration, Meta()] = msgspec.field(default="0s", name="for")
    keep_firing_for: Annotated[Duration, Meta()] = msgspec.field(default="0s", name="keep_firing_for")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Group(Known, frozen=True, kw_only=True):
    """Rules that are evaluated together."""

    name: str
    interval: Duration = "1m"
    rules: tuple[Alert, ...]


class Groups(Known, frozen=True, kw_only=True):
    """What a file of rules has."""

    groups: tuple[Group, ...]


class PrometheusRule(Known, frozen=True, kw_only=True):
    """The operator's: rules."""

    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PrometheusRule"]
    metadata: Metadata
    spec: Groups


class Relabeling(Known, frozen=True, kw_only=True):
    """A change of labels before a scrape."""

    action: Literal["replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep"] = "replace"
    source_labels: tuple[str, ...] = ()
    separator: str = ";"
    target_label: str = ""
    regex: str = "(.*)"
    replacement: str = "$1"


class Endpoint(Known, frozen=True, kw_only=True):
    """A port of pods that is scraped."""

    port: Name = ""
    path: Annotated[str, Meta(pattern="^/")] = "/metrics"
    scheme: Literal["http"] = "http"
    interval: Duration = "30s"
    scrape_timeout: Duration = "10s"
    relabelings: tuple[Relabeling, ...] = ()


class Expression(Known, frozen=True, kw_only=True):
    """A condition on one label."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(Known, frozen=True, kw_only=True):
    """Which pods."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


class Namespaces(Known, frozen=True, kw_only=True):
    """Of which namespaces."""

    match_names: tuple[Name, ...]


class Monitored(Known, frozen=True, kw_only=True):
    """What is scraped of which pods."""

    selector: Selector
    pod_metrics_endpoints: Annotated[tuple[Endpoint, ...], Meta(min_length=1)]
    namespace_selector: Namespaces | None = None
    job_label: str = ""
    pod_target_labels: tuple[str, ...] = ()
    sample_limit: Count = 0


class PodMonitor(Known, frozen=True, kw_only=True):
    """The operator's: pods that are scraped."""

    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PodMonitor"]
    metadata: Metadata
    spec: Monitored


SCHEMAS: Final[dict[str, Any]] = {
    one.__name__: one for one in (ScaledObject, TriggerAuthentication, PrometheusRule, PodMonitor)
}


def read(manifest: Manifest) -> Any:
    """The resource as a typed document. Raises :class:`msgspec.ValidationError` that names what is wrong."""
    return msgspec.convert(manifest, SCHEMAS[manifest["kind"]])
