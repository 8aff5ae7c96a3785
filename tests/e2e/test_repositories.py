"""``signalbox up --repository s3://…``: models that nobody registers are served, from a bucket alone."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from signalbox.client import Client
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.program.errors import SignalboxError
from tests.e2e.upprocess import EDGE, Up
from tests.rigs import models
from tests.rigs.objectstore import ObjectStoreServer

NOTICED_S: Final = 120.0

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def bucket(object_store: ObjectStoreServer) -> str:
    name = object_store.bucket()
    object_store.put_folder(name, "fleet/half/1", models.half_plus_two())
    return name


@pytest.fixture
def up(bucket: str, object_store: ObjectStoreServer, tmp_path: Path) -> Iterator[Up]:
    command = (*EDGE, "--no-demo", "--repository", f"s3://{bucket}/fleet")
    started = Up(tmp_path / "data", *command, env=object_store.environment())
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGTERM)


async def test_models_of_a_bucket_are_served_and_so_is_a_version_that_comes_later(
    up: Up, bucket: str, object_store: ObjectStoreServer
) -> None:
    doc = await asyncio.to_thread(up.wait_until_up)
    token = (up.data / "secrets" / "operator_token").read_text()
    async with ConsoleClient(doc["console"], token) as console:
        assert (await console.repositories())["fleet"] == f"s3://{bucket}/fleet"
        await console.request("PATCH", "/api/repositories/fleet", b'{"settle_s": 0}')
        key = await console.create_key("consumer")
        async with Client(doc["front"], key) as client:
            assert await _answer(client) == {"predictions": [2.5, 3.0, 4.5]}
            object_store.put_folder(bucket, "fleet/half/2", models.half_plus_two())
            assert await _answer(client, version=2) == {"predictions": [2.5, 3.0, 4.5]}
    cache = up.data / "cache"
    held = sorted(path.relative_to(cache).as_posix() for path in cache.rglob("saved_model.pb"))
    assert held == ["fleet/half/1/saved_model.pb", "fleet/half/2/saved_model.pb"]


async def _answer(client: Client, version: int | None = None) -> dict[str, Any]:
    """As soon as the model is noticed, fetched and loaded."""
    async with asyncio.timeout(NOTICED_S):
        while True:
            try:
                return await client.predict("half", instances=[1.0, 2.0, 5.0], version=version)
            except SignalboxError:
                await asyncio.sleep(0.5)  # the console's own pace
