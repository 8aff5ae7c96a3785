"""Network policies let through what is in this table of who talks to whom, and nothing else."""

import copy
from collections.abc import Iterator, Mapping
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.chart import NAMESPACE, Rendered, selects
from tests.rigs.helm import render
from tests.rigs.netpolicies import End, Policies

VALUES = Path(__file__).with_name("talks.yaml")
"""Values that name every peer below."""
TALKS: Mapping[tuple[str, str], tuple[int, ...]] = {
    # callers and people
    ("caller", "gateway"): (8080,),
    ("console", "gateway"): (8080,),  # tries models out
    ("ingress", "console"): (8000,),
    ("keda", "console"): (8000,),
    # every program that has to do with jobs
    ("gateway", "nats"): (4222,),
    ("worker", "nats"): (4222,),
    ("console", "nats"): (4222,),
    ("controller", "nats"): (4222,),
    ("projector", "nats"): (4222,),
    ("outbound", "nats"): (4222,),
    ("topology", "nats"): (4222,),
    # what else keeps something
    ("gateway", "redis"): (6379,),
    ("console", "postgres"): (5432,),
    ("controller", "postgres"): (5432,),
    ("projector", "postgres"): (5432,),
    ("bootstrap", "postgres"): (5432,),
    # repositories of models, and uploads
    ("controller", "store"): (443,),
    ("worker", "store"): (443,),
    ("console", "store"): (443,),
    # receivers of webhooks
    ("outbound", "receiver"): (80, 443, 8080, 8443),
    # metrics
    ("prometheus", "gateway"): (9100,),
    ("prometheus", "worker"): (9100, 9101, 9102),
    ("prometheus", "console"): (9100,),
    ("prometheus", "controller"): (9100,),
    ("prometheus", "projector"): (9100,),
    ("prometheus", "outbound"): (9100,),
}
"""TCP, ports as pods have them. Every program asks for names, which is tested by itself."""
OURS = ("gateway", "worker", "console", "controller", "projector", "outbound", "topology", "bootstrap")
OUTSIDE: Mapping[str, End] = {
    "caller": End("caller", "203.0.113.9"),
    "internet": End("internet", "198.51.100.7"),
    "receiver": End("receiver", "203.0.113.80"),
    "store": End("store", "192.0.2.10"),
    "private": End("private", "10.99.0.5"),
    "metadata": End("metadata", "169.254.169.254"),
    "nats": End("nats", "10.1.1.1", "nats", {"app.kubernetes.io/name": "nats"}),
    "postgres": End("postgres", "10.1.1.2", "data", {"app.kubernetes.io/name": "postgresql"}),
    "redis": End("redis", "10.1.1.3", "data", {"app.kubernetes.io/name": "redis"}),
    "ingress": End("ingress", "10.1.1.4", "ingress-nginx", {"app.kubernetes.io/name": "ingress-nginx"}),
    "prometheus": End("prometheus", "10.1.1.5", "monitoring", {"app.kubernetes.io/name": "prometheus"}),
    "keda": End("keda", "10.1.1.6", "keda", {"app": "keda-operator"}),
    "dns": End("dns", "10.1.1.7", "kube-system", {"k8s-app": "kube-dns"}),
    "bare": End("bare", "10.1.2.1", NAMESPACE),
}
"""All but our pods. What is no pod has no namespace."""
PORTS = sorted(
    {22, 53, 80, 443, 5432, 6222, 8222, 9111, 9112, 9113, 9696, 9697} | {p for ports in TALKS.values() for p in ports}
)
DNS_PORT = 53


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    """The chart with everything that talks, each peer named."""
    return render("--values", str(VALUES))


def ends(rendered: Rendered) -> dict[str, End]:
    """Ours and all others. Pods like ours, in another namespace and of another release, are strangers."""
    found = dict(OUTSIDE)
    for number, name in enumerate(OURS):
        pods = rendered.of_component(name)
        ports = {port: value for one in pods[0].containers for port, value in one.ports.items()}
        found[name] = End(name, f"10.1.0.{number + 1}", NAMESPACE, pods[0].labels, ports)
        found[f"{name} elsewhere"] = found[name]._replace(name=f"{name} elsewhere", namespace="other")
        labels = {**pods[0].labels, "app.kubernetes.io/instance": "another"}
        found[f"{name} of another release"] = found[name]._replace(name=f"{name} of another release", labels=labels)
    return found


def wrong(rendered: Rendered) -> list[str]:
    """Connections that are let through and must not be, or the other way."""
    sure = Policies(rendered.of("NetworkPolicy"), NAMESPACE, blocks_take_pods=False)
    lax = Policies(rendered.of("NetworkPolicy"), NAMESPACE, blocks_take_pods=True)
    found, every = [], ends(rendered)
    for source, target, port, protocol in connections(every):
        pair = every[source], every[target]
        if is_wanted(source, target, port, protocol):
            if not sure.let(*pair, port, protocol):
                found.append(f"{source} cannot reach {target}:{port} {protocol}")
        elif lax.let(*pair, port, protocol):
            found.append(f"{source} reaches {target}:{port} {protocol}")
    return found


def connections(every: Mapping[str, End]) -> Iterator[tuple[str, str, int, str]]:
    """All that one of our pods could have a part in."""
    for (source, target), port, protocol in product(permutations(every, 2), PORTS, ("TCP", "UDP")):
        if source in OURS or target in OURS:
            yield source, target, port, protocol


def is_wanted(source: str, target: str, port: int, protocol: str) -> bool:
    """What the table says. Everybody asks for names."""
    if target == "dns":
        return port == DNS_PORT
    if protocol != "TCP":
        return False
    if source == "outbound" and target in PUBLIC:
        return port in TALKS["outbound", "receiver"]
    if source not in OURS and target == "gateway" and port in TALKS["caller", "gateway"]:
        return True
    return port in TALKS.get((source, target), ())


PUBLIC = ("caller", "internet", "receiver", "store")
"""Addresses in the internet: a receiver of webhooks may be at each of them."""


def test_what_the_table_says_is_let_through_and_nothing_else(rendered: Rendered) -> None:
    assert not wrong(rendered)


def test_every_rule_is_there_for_something(rendered: Rendered) -> None:
    every = ends(rendered)
    wanted = [one for one in connections(every) if is_wanted(*one)]
    rules = [
        (policy, way, number)
        for policy, way in product(rendered.of("NetworkPolicy"), ("ingress", "egress"))
        for number in range(len(policy["spec"].get(way, ())))
    ]
    for manifest, way, number in rules:
        spec = {**manifest["spec"], way: [r for n, r in enumerate(manifest["spec"][way]) if n != number]}
        others = [one for one in rendered.of("NetworkPolicy") if one is not manifest]
        left = Policies([*others, {**manifest, "spec": spec}], NAMESPACE, blocks_take_pods=False)
        lost = any(not left.let(every[s], every[t], port, protocol) for s, t, port, protocol in wanted)
        assert lost, f"{manifest['metadata']['name']}: {way} {number} lets nothing through that another rule does not"


@pytest.mark.parametrize(
    ("policy", "more", "seen"),
    [
        ("sb-gateway", {"egress": [{"ports": [{"port": 443}]}]}, "gateway reaches metadata:443 TCP"),
        ("sb-worker", {"ingress": [{"from": [{"podSelector": {}}]}]}, "bare reaches worker:22 TCP"),
        ("sb-outbound", {"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}, "outbound reaches private:443 TCP"),
        (
            "sb-console",
            {"ingress": [{"from": [{"namespaceSelector": {}}]}]},
            "console elsewhere reaches console:8000 TCP",
        ),
    ],
)
def test_a_rule_too_many_is_seen(rendered: Rendered, policy: str, more: Mapping[str, list[Any]], seen: str) -> None:
    changed = copy.deepcopy(rendered.manifests)
    for one in changed:
        if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == policy:
            for way, rules in more.items():
                one["spec"][way] = [*one["spec"].get(way, ()), *rules]
    assert seen in wrong(Rendered(changed))


def test_every_pod_is_closed_both_ways_before_anything_is_let_through(rendered: Rendered) -> None:
    for pod in rendered.pods:
        mine = [one["spec"] for one in rendered.of("NetworkPolicy") if selects(one["spec"]["podSelector"], pod.labels)]
        assert {"Ingress", "Egress"} <= {way for spec in mine for way in spec["policyTypes"]}, pod.name


def test_policies_are_turned_off_together() -> None:
    assert not render("--values", str(VALUES), "--set", "networkPolicies.enabled=false").of("NetworkPolicy")
