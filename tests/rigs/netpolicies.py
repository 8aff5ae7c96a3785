"""Which connections network policies let through, as Kubernetes defines it, computed from the manifests."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.rigs.chart import Manifest, selects

NAME_OF_NAMESPACE: Final = "kubernetes.io/metadata.name"


class End(NamedTuple):
    """One end of a connection. namespace: of a pod; empty = what is no pod. ports: those of its containers, by name."""

    name: str
    address: str
    namespace: str = ""
    labels: Mapping[str, str] = {}
    ports: Mapping[str, int] = {}


class Policies:
    """The policies of one namespace.

    blocks_take_pods: whether a block of addresses in a policy takes pods' addresses too, which Kubernetes leaves to the
    network. What shall be let through must be without it, and what shall not must not be with it.
    """

    def __init__(self, manifests: Sequence[Manifest], namespace: str, *, blocks_take_pods: bool) -> None:
        self._manifests = manifests
        self._namespace = namespace
        self._blocks_take_pods = blocks_take_pods

    def let(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Whether ``source`` may open a connection to a port of ``target``."""
        return self._passes("Egress", source, target, target, port, protocol) and self._passes(
            "Ingress", target, source, target, port, protocol
        )

    def _passes(self, way: str, own: End, other: End, target: End, port: int, protocol: str) -> bool:
        """One end's word. A pod that no policy of this way selects lets all through."""
        mine = [one["spec"] for one in self._manifests if self._is_of(one["spec"], way, own)]
        if not mine:
            return True
        return any(
            self._names(rule.get("to" if way == "Egress" else "from"), other)
            and _has_port(rule.get("ports"), target, port, protocol)
            for spec in mine
            for rule in spec.get(way.lower()) or ()
        )

    def _is_of(self, spec: Mapping[str, Any], way: str, own: End) -> bool:
        kinds = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
        return own.namespace == self._namespace and way in kinds and selects(spec["podSelector"], own.labels)

    def _names(self, peers: Sequence[Mapping[str, Any]] | None, other: End) -> bool:
        """Whether one of the peers is the other end. No list, or an empty one, names everybody."""
        return not peers or any(self._is(peer, other) for peer in peers)

    def _is(self, peer: Mapping[str, Any], other: End) -> bool:
        if "ipBlock" in peer:
            address, block = ipaddress.ip_address(other.address), peer["ipBlock"]
            return (
                (not other.namespace or self._blocks_take_pods)
                and address in ipaddress.ip_network(block["cidr"])
                and not any(address in ipaddress.ip_network(each) for each in block.get("except") or ())
            )
        if not other.namespace:
            return False
        if "namespaceSelector" in peer:
            is_there = selects(peer["namespaceSelector"], {NAME_OF_NAMESPACE: other.namespace})
        else:
            is_there = other.namespace == self._namespace
        return is_there and selects(peer.get("podSelector", {}), other.labels)


def _has_port(ports: Sequence[Mapping[str, Any]] | None, target: End, port: int, protocol: str) -> bool:
    return not ports or any(_is_port(each, target, port, protocol) for each in ports)


def _is_port(given: Mapping[str, Any], target: End, port: int, protocol: str) -> bool:
    if given.get("protocol", "TCP") != protocol:
        return False
    named = given.get("port")
    if isinstance(named, str):
        return target.ports.get(named) == port
    return named is None or named <= port <= given.get("endPort", named)
