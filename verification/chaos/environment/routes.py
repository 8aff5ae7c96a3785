"""The connections among a cluster's nodes, through proxies of the rig, so that a node can be cut off from the rest.

A pair has two proxies, one for whichever of both calls the other. Nodes also tell each other where they are: what they
say here is an address where no server listens, as a connection beside the proxies would outlive a cut.
"""

from collections.abc import Sequence
from typing import Final

from signalbox.ops.ports import HOST, free_port
from tests.rigs.natsserver import NatsServer
from verification.chaos.environment.proxy import CALM, CUT, Proxy

NOWHERE: Final = f"{HOST}:1"


class NodeRoutes:
    """``await Routes.lay(servers)`` before they are started; :meth:`cut` and :meth:`heal` as often as one likes."""

    def __init__(self) -> None:
        self._proxies: dict[tuple[int, int], Proxy] = {}

    async def lay(self, servers: Sequence[NatsServer]) -> None:
        """Have the servers call each other through us."""
        ports = [free_port() for _ in servers]
        for number, server in enumerate(servers):
            for other, port in enumerate(ports):
                if other != number:
                    self._proxies[number, other] = Proxy((HOST, port))
                    await self._proxies[number, other].start()
            peers = ", ".join(f'"{proxy.url}"' for (from_, _), proxy in self._proxies.items() if from_ == number)
            server.cluster = (
                f"name: test, listen: {HOST}:{ports[number]}, no_advertise: true,"
                f' advertise: "{NOWHERE}", routes: [{peers}]'
            )

    def cut(self, number: int) -> None:
        """Drop all between a node and the others, without an error."""
        for ends, proxy in self._proxies.items():
            if number in ends:
                proxy.change(CUT)

    def heal(self, *, is_late: bool) -> None:
        """What was cut passes again. is_late: what was sent meanwhile arrives now; else it is lost, by RST."""
        for proxy in self._proxies.values():
            if proxy.weather is not CUT:
                continue
            if not is_late:
                proxy.reset()  # first: what is held would go on its way when it may
            proxy.change(CALM)
            proxy.reset_deaf()

    async def close(self) -> None:
        """End every way."""
        for proxy in self._proxies.values():
            await proxy.close()
