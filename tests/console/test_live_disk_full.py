"""NATS whose disk was full, without a supervisor that restarts it: the board says so, as the programs report it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from console.feed import faults
from signalbox.bus import stalls, topology
from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire.names import NATS_FAULT, NATS_STALLED
from signalbox.wire.roles import ROLES
from tests.console.test_live_feed import watching
from tests.rigs.natsserver import NatsServer
from verification.chaos.environment.smalldisk import SmallDisk

PASSWORDS: dict[str, str] = {role: f"secret of {role}" for role in ROLES}
EVENT_S = 60.0


@pytest.fixture
async def server(disk: SmallDisk) -> AsyncIterator[NatsServer]:
    async with NatsServer(disk.folder, users=PASSWORDS) as started:
        admin = await Bus.connect(as_role(started, "admin"), role="admin")
        await topology.apply(admin, storage_bytes=64 << 20)
        await admin.close()
        yield started


def as_role(server: NatsServer, role: str) -> Wire:
    return Wire(nats_url=server.url, nats_user=role, nats_password=PASSWORDS[role], request_timeout_s=0.5)


async def keep_writing(bus: Bus, subject: str) -> None:
    """What a program of this role writes again and again, answered or not."""
    while True:
        with contextlib.suppress(SignalboxError):
            await bus.write(subject, b"x" * 20_000)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(("role", "subject"), [("gateway", "jobs.m.mid.t.s.j"), ("worker", "$KV.workers.w")])
async def test_the_board_says_that_nats_stores_nothing_as_programs_without_answers_report(
    server: NatsServer, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, role: str, subject: str
) -> None:
    monkeypatch.setattr(stalls, "STALLED_S", 1.0)
    async with asyncio.TaskGroup() as group, watching(as_role(server, "console")) as (feed, viewer):
        await asyncio.wait_for(feed.synced.wait(), EVENT_S)
        buses = [await Bus.connect(as_role(server, role), role=role) for _ in range(2)]
        writers = [group.create_task(keep_writing(bus, subject)) for bus in buses]
        disk.fill()
        await viewer.until(lambda: viewer.row("alarms", "nats"), timeout_s=EVENT_S)
        row = viewer.row("alarms", "nats")
        assert (row["level"], row["text"]) == ("error", stalls.WHY)
        assert [key for key in viewer.mirror.rows["alarms"] if "nats" in key] == ["nats"]
        disk.free()  # which changes nothing
        await server.kill()
        await server.start()
        await viewer.until(lambda: not viewer.row("alarms", "nats"), timeout_s=EVENT_S)
        for task in writers:
            task.cancel()
        for bus in buses:
            await bus.close()


async def test_who_restarts_the_server_is_shown_before_who_misses_its_answers(
    bus: Bus, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "KEPT_S", 1e9)
    async with watching(wire) as (feed, viewer):
        await asyncio.wait_for(feed.synced.wait(), EVENT_S)
        await bus.publish(NATS_FAULT, b"It is being restarted.")
        await viewer.until(lambda: viewer.row("alarms", "nats"))
        await bus.publish(NATS_STALLED, b"whatever a program says")
        await bus.flush()
        await viewer.until(lambda: feed.faults.stalled_until > 0)
        assert viewer.row("alarms", "nats")["text"] == "It is being restarted."
