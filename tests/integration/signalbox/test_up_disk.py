"""NATS under ``signalbox up`` on a disk that is small: full for a moment, and short of room."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from signalbox.bus import stalls, topology
from signalbox.bus.client import Bus
from signalbox.bus.disk import Room
from signalbox.ops.foreground import UP_FILE
from signalbox.ops.up import datadir, main, natskeeper, streams
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.first import Greeting
from signalbox.ops.up.natskeeper import NatsKeeper
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire.names import NATS_FAULT, Stream
from tests.rigs.gateway import ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer
from verification.chaos.environment.smalldisk import SmallDisk

EVENT_S = 60.0


class Said:
    """What a person at the terminal reads."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, sentence: str) -> None:
        self.sentences.append(sentence)
        self._more.set()

    async def wait_for(self, words: str, times: int = 1) -> None:
        """Return when ``words`` have been said so often."""
        async with asyncio.timeout(EVENT_S):
            while sum(words in sentence for sentence in self.sentences) < times:
                self._more.clear()
                await self._more.wait()


@pytest.fixture
async def said() -> Said:
    return Said()


@pytest.fixture
async def stack(disk: SmallDisk, said: Said) -> AsyncIterator[UpStack]:
    """A stack of NATS alone, kept."""
    with DataDir(disk.folder.parent) as data:
        made = UpStack(UpOptions(nats_port=0, front_port=0, console_port=0), data, said)
        await made.start_nats()
        keeping = asyncio.create_task(made.keep(lambda: None))
        try:
            yield made
        finally:
            await made.stop()
            await keeping


async def stored(stack: UpStack, number: int) -> bool:
    """Whether this message is stored, as its acknowledgement says."""
    with contextlib.suppress(SignalboxError):
        await stack.bus.write(f"jobs.digits.mid.j{number}", b"x" * 20_000, timeout_s=0.5)
        return True
    await asyncio.sleep(0.05)  # refused at once while NATS is away
    return False


async def test_nats_serves_again_by_itself_after_its_disk_was_full(stack: UpStack, disk: SmallDisk, said: Said) -> None:
    nats = stack.children[0]
    first = nats.pid
    acknowledged = [number for number in range(20) if await stored(stack, number)]
    disk.fill()
    assert not await stored(stack, 100)
    disk.free()
    async with asyncio.timeout(EVENT_S):
        while not await stored(stack, 200):
            pass
    assert nats.pid not in {0, first}
    for number in acknowledged:
        found = await stack.bus.leader_get(Stream.JOBS, f"jobs.digits.mid.j{number}")
        assert found is not None, number
    await said.wait_for("NATS cannot write to its disk and stores nothing now; waiting for room there")
    await said.wait_for("NATS is back")


@pytest.mark.parametrize("disk", [""], indirect=True)
async def test_a_full_data_folder_ends_no_program_of_the_stack(
    disk: SmallDisk, said: Said, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(datadir, "LEAST_FREE_BYTES", 0)
    monkeypatch.setattr(streams, "_NOTED_EVERY_S", 0.05)
    with DataDir(disk.folder) as data:
        stack = UpStack(UpOptions(nats_port=0, front_port=0, console_port=0), data, said)
        await stack.start_nats()
        shown = Greeting("admin", "", "")
        keeping = asyncio.create_task(stack.keep(lambda: main.note(stack, shown)))
        disk.fill()
        logged = ""
        async with asyncio.timeout(EVENT_S):
            while "up.streams_not_seen" not in logged and not keeping.done():
                await asyncio.sleep(0.02)
                logged += capsys.readouterr().err
        main.note(stack, shown)
        assert "up.file_not_written" in capsys.readouterr().err
        assert [file.name for file in data.path.glob(".*.json.*")] == []
        disk.free()
        assert not keeping.done()
        stack.children[0].kill()
        async with asyncio.timeout(EVENT_S):
            while not await stored(stack, 1):
                pass
        await stack.stop()
        await keeping
        assert data.read_json(UP_FILE)["nats"] == stack.nats_url


async def test_nats_is_not_restarted_while_its_disk_is_short_of_room(
    stack: UpStack, disk: SmallDisk, said: Said
) -> None:
    first = stack.children[0].pid
    reported: asyncio.Queue[bytes] = asyncio.Queue()
    await stack.bus.subscribe(NATS_FAULT, lambda message: reported.put_nowait(message.data))
    disk.fill()
    assert not await stored(stack, 1)
    await said.wait_for("waiting for room")
    await said.wait_for("the disk of NATS has less than 64 MB left: new jobs are refused")
    async with asyncio.timeout(EVENT_S):
        assert (await reported.get()).startswith(b"NATS stores nothing: its disk is full, or was.")
    # Room, and less than the reserve.
    os.truncate(disk.folder / "filler", (disk.size_mb - 32) << 20)
    assert not await stored(stack, 2)
    assert stack.children[0].pid == first
    disk.free()
    async with asyncio.timeout(EVENT_S):
        while not await stored(stack, 3):
            pass
    assert stack.children[0].pid != first
    await said.wait_for("the disk of NATS has room again; new jobs are taken")


async def test_a_disk_that_fills_again_and_again_is_left_to_a_person(
    stack: UpStack, disk: SmallDisk, said: Said
) -> None:
    assert await stored(stack, 1)  # of its first message that does not fit a stream says nothing
    for fault in range(natskeeper.MOST_RESTARTS):
        disk.fill()
        assert not await stored(stack, 1000 + fault)
        disk.free()
        await said.wait_for("NATS is back", times=fault + 1)
    pid = stack.children[0].pid
    disk.fill()
    assert not await stored(stack, 2000)
    disk.free()
    await said.wait_for("Give its disk more room")
    assert not await stored(stack, 2001)
    assert stack.children[0].pid == pid


async def test_callers_are_told_why_nothing_is_stored_and_what_mends_it(
    disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nats-server that is not restarted, as in a deployment."""
    monkeypatch.setattr(stalls, "STALLED_S", 1.0)
    async with NatsServer(disk.folder) as server:
        wire = Wire(nats_url=server.url, request_timeout_s=0.5)
        admin = await Bus.connect(wire, role="admin")
        await topology.apply(admin, storage_bytes=64 << 20)
        async with rig(server.url, tmp_path, request_timeout_s=0.5) as front:
            mine = key()
            await front.publish(model(), mine)
            disk.fill()
            ask = partial(front.call, "POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine)
            async with asyncio.timeout(EVENT_S):
                while stalls.WHY not in (answer := await ask()).doc["error"]:
                    assert answer.status == 503
            disk.free()  # which changes nothing
            answers = [await ask() for _ in range(3)]
            assert {one.status for one in answers} == {503}
            assert all(stalls.WHY in one.doc["error"] for one in answers)
            assert any("Nothing was accepted." in one.doc["error"] for one in answers)
            assert all(int(one.headers["Retry-After"]) >= 1 for one in answers)
            is_back = asyncio.Event()
            front.bus.on_reconnect(is_back.set)
            await server.kill()
            await server.start()
            async with asyncio.timeout(EVENT_S):
                await is_back.wait()
                async with ScriptedWorker(front.bus, "half"):
                    while True:
                        if (await ask()).status == 200:
                            break
                        await asyncio.sleep(0.05)
        await admin.close()


async def test_words_of_a_fault_that_come_in_two_pieces_are_received(tmp_path: Path) -> None:
    keeper = NatsKeeper(Room(tmp_path, 0), lambda _: None)
    keeper.receive(b"[ERR] Filestore [JOBS] Critical wri")
    await asyncio.sleep(0)
    assert not keeper._has_failed.is_set()
    keeper.receive(b"te error: write 1.blk: input/output error\n")
    await asyncio.sleep(0)
    assert keeper._has_failed.is_set()
