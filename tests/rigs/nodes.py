"""Several nats-servers that form one cluster on this machine."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from signalbox.ops.ports import HOST, free_port
from tests.rigs.natsserver import NatsServer

START_S: Final = 60.0
"""Far above what a node takes: a busy machine is no fault of the server's."""


def nodes(folders: Sequence[Path], *, users: Mapping[str, str] | None = None) -> list[NatsServer]:
    """One server a folder, not started; a cluster where there are several.

    Clients do not learn the nodes' addresses from each other: they would go around the proxies that tests put between.
    """
    routes = [free_port() for _ in folders]
    peers = ", ".join(f'"nats://{HOST}:{route}"' for route in routes)
    return [
        NatsServer(
            folder,
            name=f"n{number}",
            users=users,
            start_timeout_s=START_S,
            cluster=(
                f"name: test, listen: {HOST}:{route}, no_advertise: true, routes: [{peers}]" if len(folders) > 1 else ""
            ),
        )
        for number, (folder, route) in enumerate(zip(folders, routes, strict=True))
    ]


async def started(servers: Sequence[NatsServer]) -> None:
    """Start all of them, at once: a node alone waits for the others."""
    await asyncio.gather(*(server.start() for server in servers))
