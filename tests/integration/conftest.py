"""Fixtures of the plugin's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signalbox.natsserver import NatsServer
from tests.gatewayrig import Key, Rig, key, model, rig


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
