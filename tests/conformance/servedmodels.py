"""Real models in a real worker behind a front: what tests of a dialect's answers call."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire.modeldocs import Model, Version
from tests.conformance.programs import Program
from tests.conformance.test_signalbox_front import housed, publish
from tests.conftest import ServerThread
from tests.rigs import mirrors, models, oddmodels, servingmodels
from tests.rigs.gateway import Key, key
from tests.rigs.natsserver import NatsServer
from workers.runner import savedmodel

CORS: Final = "SIGNALBOX_GATEWAY_CORS"


class Fleet(NamedTuple):
    """A nats-server with the models and a key that may call them, and a worker that runs them."""

    nats: NatsServer
    key: Key


class Served(NamedTuple):
    """A front before a fleet. client: has the key. grpc: ``host:port`` where it serves gRPC."""

    kind: str
    client: httpx.Client
    grpc: str
    key: str


@contextmanager
def fleet() -> Iterator[Fleet]:
    """Starts one, with every model of :func:`_paths`."""
    documents = [_model(name, folders) for name, folders in _paths().items()]  # may build them, which takes minutes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sb-serving-")))
        owner = ServerThread(folder / "nats")
        stack.callback(owner.close)
        owner.call(owner.server.start)
        mine = key()
        asyncio.run(_publish(owner.server.url, mine, documents))
        env = {
            "SIGNALBOX_NATS_URL": owner.server.url,
            "SIGNALBOX_WORKER_ID": "w1",
            "SIGNALBOX_WORKER_LOCK_DIR": str(folder / "locks"),
            "SIGNALBOX_WORKER_INTERVAL_LOG": str(folder / "intervals.log"),
            "CUDA_VISIBLE_DEVICES": "",
        }
        stack.enter_context(Program([sys.executable, "-m", "workers"], ready="lease.acquired", env=env))
        yield Fleet(owner.server, mine)


@contextmanager
def served(kind: str, behind: Fleet) -> Iterator[Served]:
    """A front of ``kind`` that lets browsers of any origin in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CORS, "on")
        with housed(kind, behind.nats) as house:
            headers = {"Authorization": f"Bearer {behind.key.text}"}
            with httpx.Client(base_url=house.url, headers=headers, timeout=120) as client:
                yield Served(kind, client, house.grpc, behind.key.text)


def _paths() -> dict[str, dict[int, Path]]:
    """The folders of each model's versions."""
    made = servingmodels.folder()
    half = models.half_plus_two()
    return {
        "half": {1: half, 2: half},
        "half_plus_two": {1: half},
        "pair": {1: made / "pair" / "1"},
        "scorer": {1: made / "scorer" / "1"},
        "shout": {1: models.shout()},
        "slow": {1: models.slow()},
        "mirror": {1: models.mirror()},
        "total": {1: models.total()},
        "weigh": {1: models.weigh()},
        **{folder.name: {1: folder / "1"} for folder in sorted(mirrors.folder().iterdir())},
        **{name: {1: oddmodels.folder() / name / "1"} for name in ("names", "composite", "sparse_input", "defaults")},
    }


def _model(name: str, folders: dict[int, Path]) -> Model:
    """As the console would publish it."""
    versions = []
    for number, folder in folders.items():
        found = savedmodel.inspect(folder)
        versions.append(
            Version(
                version=number,
                path=str(folder),
                digest=found.digest,
                size_bytes=found.size_bytes,
                signatures=found.signatures,
            )
        )
    labels = {"stable": 1} if len(versions) > 1 else {}
    return Model(name=name, versions=tuple(versions), default_version=max(folders), labels=labels)


async def _publish(url: str, mine: Key, documents: list[Model]) -> None:
    bus = await Bus.connect(Wire(nats_url=url), role="admin", name="conformance")
    await topology.apply(bus)
    await publish(bus, mine, *documents)
    await bus.close()
