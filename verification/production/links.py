"""Plans addresses and ``/etc/hosts`` of the services, as the compose file's networks say."""

from collections.abc import Mapping
from typing import NamedTuple

from verification.production.compose import Compose


class Link(NamedTuple):
    """A service on a network. host: the end on the bridge, here; inside: the end in its namespace."""

    network: str
    address: str
    host: str
    inside: str


def plan(compose: Compose, subnets: Mapping[str, str], stem: str) -> dict[str, list[Link]]:
    """Links by service, in the order of its networks.

    subnets: by network, the first three numbers of its addresses; ``.1`` is this machine. stem: what names begin with.
    """
    return {
        name: [
            Link(network, f"{subnets[network]}.{number + 2}", f"{stem}v{number}.{n}", f"eth{n}")
            for n, network in enumerate(service.on)
        ]
        for number, (name, service) in enumerate(compose.services.items())
    }


def hosts(compose: Compose, links: Mapping[str, list[Link]], service: str) -> str:
    """A service's ``/etc/hosts``: itself, and all that share a network with it, under their names there."""
    mine = {link.network for link in links[service]}
    own = compose.services[service].hostname or service
    lines = ["127.0.0.1 localhost", *(f"{link.address} {own}" for link in links[service][:1])]
    for other, theirs in links.items():
        shared = [link for link in theirs if link.network in mine]
        aliases = compose.services[other].on
        for number, link in enumerate(shared):
            # Its own name means one address, so that a cut of that link is a cut.
            names = [*([] if number else [other]), *aliases[link.network]]
            if names:
                lines.append(f"{link.address} {' '.join(names)}")
    return "\n".join(lines) + "\n"
