"""A hostile SavedModel in a real, confined runner: files, the network, floods, results without end."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from signalbox.program.errors import ModelError, ResultTooLarge, SignalboxError
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor
from signalbox.wire.workerdocs import Device
from tests.rigs.hostilemodel import hostile
from workers.device.guardedrunner import GuardedRunner
from workers.device.settings import DeviceSettings
from workers.guard.link import GuardReport
from workers.runner import savedmodel
from workers.runner.link import RunnerLink
from workers.runner.wire import RunnerLost
from workers.sandbox import landlock
from workers.sandbox.confinement import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT_S = 90.0
FAR_NS = 1 << 62
FRAME_LIMIT = 1 << 20


class House:
    """A guard and a runner that is inside its device, with no lease around them."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.token = 0
        self.guarded = GuardedRunner(
            Device(id="CPU-test-0", kind="cpu", name="test"),
            DeviceSettings(lock_dir=folder, staging_dir=folder, frame_limit_bytes=FRAME_LIMIT, sandbox=sandbox),
            on_report=self.receive,
        )
        self.guarded.start()

    def receive(self, word: GuardReport) -> None:
        if word.verb == "ready":
            self.guarded.order("lock")
        elif word.verb == "locked":
            self.token += 1
            self.guarded.order("enter", self.token, FAR_NS)
        elif word.verb == "entered":
            self.guarded.runner.admit(word.number)

    async def runner(self) -> RunnerLink:
        """Inside the device, with the hostile model loaded."""
        runner = self.guarded.runner
        async with asyncio.timeout(LIMIT_S):
            while True:
                await runner.entered.wait()
                try:
                    await runner.load("hostile", 1, str(hostile()))
                except RunnerLost:  # one that is being ended since the test before
                    await runner.died.wait()
                else:
                    return runner

    async def close(self) -> None:
        await self.guarded.close()


MakeHouse = Callable[[Sandbox], Awaitable[House]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folders = (str(hostile().parent),)
    house = House(tmp_path_factory.mktemp("hostile"), Sandbox(model_folders=folders))
    yield house
    await house.close()


def text(name: str, value: str) -> bytes:
    data = len(value.encode()).to_bytes(4, "little") + value.encode()
    return tensors.encode([Tensor(name, "string", (1,), data)])


def number(name: str, value: int) -> bytes:
    return tensors.encode([Tensor(name, "int32", (1,), struct.pack("<i", value))])


async def ask(runner: RunnerLink, signature: str, frame: bytes, timeout_s: float = 60.0) -> bytes:
    """The bytes of the one output."""
    report = await runner.run("hostile", 1, signature, [frame], timeout_s=timeout_s)
    return tensors.decode(report.frames[0])[0].data


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
async def test_a_model_that_is_loaded_reads_no_model_and_nothing_else(house: House, tmp_path: Path) -> None:
    runner = await house.runner()
    assert "reads restricted" in runner.sandbox.active
    with pytest.raises(ModelError):
        await ask(runner, "read", text("path", str(hostile() / savedmodel.FILE)))
    with suppress(ModelError):  # an error, or nothing found
        assert b"pb" not in await ask(runner, "find", text("path", f"{hostile()}/*"))
    canary = tmp_path / "canary"
    canary.write_text("secret")
    for path in (str(canary), "/etc/passwd", "/etc/shadow", f"/proc/{runner.pid}/../1/environ"):
        with pytest.raises(ModelError) as raised:
            await ask(runner, "read", text("path", path))
        assert "secret" not in str(raised.value)
    with suppress(ModelError):  # an error, or nothing found
        assert b"canary" not in await ask(runner, "find", text("path", f"{tmp_path}/*"))


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
async def test_a_model_writes_nowhere(house: House, tmp_path: Path) -> None:
    runner = await house.runner()
    mine = hostile() / "planted"
    for path in (tmp_path / "planted", mine, Path("/dev/shm/planted")):  # noqa: S108  to be refused
        with pytest.raises(ModelError):
            await ask(runner, "write", text("path", str(path)))
        assert not path.exists()


class Listener:
    """Counts who connects."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            self._socket.accept()[0].close()
            self.called.set()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest_asyncio.fixture(loop_scope="module")
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


async def test_a_model_reaches_nobody_over_the_network(house: House, listener: Listener) -> None:
    runner = await house.runner()
    with pytest.raises(SignalboxError):
        await ask(runner, "call", text("address", listener.address), timeout_s=4.0)
    assert not listener.called.is_set()


@pytest.mark.slow
async def test_the_same_model_without_a_sandbox_reaches_it(tmp_path: Path, listener: Listener) -> None:
    """The test above can fail: this is what it would look like."""
    house = House(tmp_path, Sandbox(mode="off"))
    try:
        runner = await house.runner()
        canary = tmp_path / "canary"
        canary.write_text("secret")
        assert b"secret" in await ask(runner, "read", text("path", str(canary)))
        asking = asyncio.create_task(ask(runner, "call", text("address", listener.address)))
        assert await asyncio.to_thread(listener.called.wait, LIMIT_S)
        runner.kill()
        with pytest.raises(SignalboxError):
            await asking
    finally:
        await house.close()


async def test_a_result_larger_than_is_taken_fails_and_costs_nobody_else(house: House) -> None:
    runner = await house.runner()
    pid = runner.pid
    with pytest.raises(ResultTooLarge):
        await ask(runner, "big", number("size", 2 * FRAME_LIMIT))
    assert len(await ask(runner, "big", number("size", 1000))) == 1000
    assert runner.pid == pid


async def test_a_model_that_prints_without_end_is_ended_and_its_job_fails(house: House) -> None:
    runner = await house.runner()
    pid = runner.pid
    with pytest.raises(ResultTooLarge, match="printed"):
        await ask(runner, "flood", number("lines", 100_000_000))
    assert runner.pid != pid
    runner = await house.runner()
    assert len(await ask(runner, "big", number("size", 10))) == 10


async def test_other_files_than_those_registered_are_not_loaded(house: House) -> None:
    runner = await house.runner()
    await runner.unload("hostile", 1)
    digest = savedmodel.manifest(hostile())[1]
    await runner.load("hostile", 1, str(hostile()), digest=digest)
    with pytest.raises(ModelError, match="not those that were registered"):
        await runner.load("hostile", 2, str(hostile()), digest="0" * 64)


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
async def test_a_model_outside_the_named_folders_is_refused_with_the_setting(house: House, tmp_path: Path) -> None:
    runner = await house.runner()
    with pytest.raises(ModelError, match="SIGNALBOX_WORKER_MODEL_FOLDERS"):
        await runner.load("outside", 1, str(tmp_path))
