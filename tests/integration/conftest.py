"""Fixtures of several modules: a plugin and its client; three nodes that can be cut off from each other."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signalbox.bus.client import Bus
from tests.rigs.gateway import Key, Rig, key, model, rig
from tests.rigs.holder import Holder
from tests.rigs.natsserver import NatsServer
from tests.rigs.nodes import nodes, started
from tests.rigs.submit import Ledger
from verification.chaos.environment.routes import NodeRoutes


@pytest.fixture
async def front(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Rig]:
    """A plugin and its client, patient with NATS."""
    async with rig(nats.url, tmp_path, request_timeout_s=20.0) as made:
        yield made


@pytest.fixture
async def mine(front: Rig) -> Key:
    """A key that may do everything; there is a model ``half``."""
    made = key()
    await front.publish(model(), made)
    return made


@pytest.fixture
async def ledger(bus: Bus) -> Ledger:
    """Submits jobs, and knows what has become of them."""
    return await Ledger(bus).start()


@pytest.fixture
async def holder(bus: Bus) -> AsyncIterator[Holder]:
    """A holder's intake, which serves no model yet."""
    made = Holder(bus)
    yield made
    await made.intake.close()


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[tuple[list[NatsServer], NodeRoutes]]:
    """Three nodes of NATS, and the ways between them."""
    servers, routes = nodes([tmp_path / f"n{number}" for number in range(3)]), NodeRoutes()
    await routes.lay(servers)
    try:
        await started(servers)
        yield servers, routes
    finally:
        for server in servers:
            await server.kill()
        await routes.close()
