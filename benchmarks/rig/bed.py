"""Test bed of the benchmarks: the programs of a job's path, one model, one key. No console.

The console's documents are written straight to NATS, so that nothing but the path uses the two cores.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from signalbox.bus import table
from signalbox.bus.client import Bus
from signalbox.client import AsyncClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.ops.up.tyk import Programs, Tyk
from signalbox.program import keys
from signalbox.program.errors import SignalboxError
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import decode
from signalbox.wire.modeldocs import Batching, Model, Signature, Version
from signalbox.wire.names import Bucket, token

MAX_BATCH: Final = 128
FIRST_ANSWER_S: Final = 90.0
RETRY_S: Final = 0.5


class Bed(NamedTuple):
    """A running path. key: an API key without limits."""

    stack: UpStack
    key: str

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of a request with our key."""
        return headers_of(self.key)


def headers_of(key: str) -> Mapping[str, str]:
    """Headers of a request with ``key``."""
    return {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}


@asynccontextmanager
async def made(
    folder: Path,
    *,
    models: tuple[str, ...] = ("half_plus_two",),
    max_batch: int = MAX_BATCH,
    tyk: Programs | None = None,
) -> AsyncIterator[Bed]:
    """NATS, the front, one worker on ``cpu:0`` and ``models``, the first of them resident before this yields."""
    options = UpOptions(data=folder, workers=1, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        async with _running(stack, models, max_batch, tyk) as key:
            yield Bed(stack, key)


@asynccontextmanager
async def _running(stack: UpStack, models: tuple[str, ...], max_batch: int, tyk: Programs | None) -> AsyncIterator[str]:
    try:
        await stack.start_nats()
        for name in models:
            await publish(stack, await made_model(stack, name, max_batch))
        key = await mint(stack)
        if tyk:
            await Tyk(stack, tyk).start()
        else:
            await stack.start_edge()
        await stack.start_worker(1)
        await first_answer(stack.front_url, key)
        yield key
    finally:
        await stack.stop()


async def first_answer(url: str, key: str, model: str = "half_plus_two") -> None:
    """Ask until the tables have reached the front and the model is loaded."""
    async with AsyncClient(url, key, retries=0) as client, asyncio.timeout(FIRST_ANSWER_S):
        while True:
            try:
                await client.predict(model, instances=[1.0])
            except SignalboxError as error:
                print(f"  (not yet: {error.public_message})", flush=True)
                await asyncio.sleep(RETRY_S)
            else:
                return


async def made_model(stack: UpStack, name: str, max_batch: int) -> Model:
    """A model of the demonstration, written below the stack's folder and inspected."""
    root = stack.data.path / "models"
    env = stack.env("worker")
    await stack.run_to_end("models", "workers.demo_models", str(root), "--only", name, env=env)
    return await inspected(stack, name, root / name / "1", max_batch)


async def inspected(stack: UpStack, name: str, path: Path, max_batch: int) -> Model:
    """The model of one version that lies at ``path``."""
    printed = await stack.run_to_end("inspect", "workers.inspect", str(path), env=stack.env("worker"))
    found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    version = Version(
        version=1,
        path=str(path),
        digest=found["digest"],
        size_bytes=found["size_bytes"],
        signatures=decode(dict[str, Signature], json.dumps(found["signatures"])),
    )
    batching = Batching(max_size=max_batch, rows_independent=True)
    return Model(name=name, versions=(version,), default_version=1, batching=batching)


async def publish(stack: UpStack, model: Model) -> None:
    """Put a model where the console would."""
    await table.put(stack.bus, Bucket.MODELS, token(model.name), model)


async def mint(stack: UpStack) -> str:
    """The text of a new key without limits."""
    return await mint_with(stack.bus, stack.data.secret("pepper").read_text())


async def mint_with(bus: Bus, pepper: str) -> str:
    """Mint a key on any NATS; returns its text."""
    text, key_id = keys.mint()
    scopes = ("jobs:submit", "jobs:read", "jobs:cancel")
    doc = ApiKey(id=key_id, account_id=key_id, hmac=keys.digest(pepper, text), scopes=scopes)
    await table.put(bus, Bucket.KEYS, token(key_id), doc)
    return text
