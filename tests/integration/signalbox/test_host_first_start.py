"""The first worker of a fleet that has none: what a host looks for, and what brings one."""

import asyncio
import math
import time

import pytest

from signalbox.bus.client import Bus
from signalbox.ops.host import firststart
from signalbox.ops.host.firststart import FirstStart
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.names import Stream
from signalbox.wire.scaling import Host, HostDevice, HostWorker
from signalbox.wire.workerdocs import Device
from tests.rigs.natsserver import NatsServer
from tests.rigs.presence import presence
from tests.rigs.submit import Ledger, floats
from verification.chaos.environment.proxy import CALM, Proxy, Weather


async def test_records_that_a_draining_worker_has_yet_to_read_start_no_other_before_it_has_gone(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = (HostWorker(id="w", device="cpu-1", state="draining"),)
    device = Device(id="cpu-1", kind="cpu", name="cpu:1")
    host = Host(id="h", host="h", devices=(HostDevice(device=device, class_="cpu"),), workers=kept)
    workers = [presence("w", "cpu-1", state="draining", host="h")]
    first = FirstStart(
        bus,
        "h",
        hosts=lambda: [host],
        scale=lambda: None,
        workers=lambda: workers,
        start=lambda _: None,
        clock=time.time,
    )
    left_there = {Stream.JOBS: {"messages": 0}, Stream.STATE: {"messages": 1, "last_seq": 5}}

    async def stands(stream: Stream) -> dict[str, int]:
        return left_there[stream]

    monkeypatch.setattr(first, "_stream", stands)
    await first._look()
    assert first._due_at == math.inf
    first._doubted.clear()
    workers.clear()
    first.learn(names.token("w"), None)
    assert first._doubted.is_set()
    await first._look(with_records=False)  # each minute: owners delete ended jobs at any time
    assert first._due_at == math.inf
    await first._look()
    assert first._due_at == 0.0
    await first.close()


async def test_a_host_to_which_nats_does_not_tell_at_first_what_waits_asks_again(
    nats: NatsServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firststart, "_AGAIN_S", 0.1)
    await ledger.submit("half", floats(1.0))  # before the host listens: no event will tell of it
    device = HostDevice(device=Device(id="cpu-1", kind="cpu", name="cpu:1"), class_="cpu")
    host = Host(id="h", host="h", devices=(device,), started_at=time.time(), beat_at=time.time())
    async with (
        Proxy((nats.host, nats.port)) as proxy,
        await Bus.connect(Wire(nats_url=proxy.url, request_timeout_s=0.5), role="host") as bus,
    ):
        started: asyncio.Queue[str] = asyncio.Queue()
        first = FirstStart(
            bus,
            "h",
            hosts=lambda: [host],
            scale=lambda: None,
            workers=list,
            start=started.put_nowait,
            clock=time.time,
        )
        await first.start()
        proxy.change(Weather(held=frozenset({"down"})))
        keeping = asyncio.create_task(first.keep())
        try:
            await asyncio.sleep(0.8)  # for the answer that it waits for no longer
            proxy.change(CALM)
            assert bus.is_connected, "a reconnect would have it ask again"
            async with asyncio.timeout(20):
                assert await started.get() == "cpu-1"
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await first.close()


async def test_a_job_of_which_no_event_was_heard_brings_a_worker_all_the_same(
    bus: Bus, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firststart, "_LOST_S", 0.3)
    device = HostDevice(device=Device(id="cpu-1", kind="cpu", name="cpu:1"), class_="cpu")
    host = Host(id="h", host="h", devices=(device,), started_at=time.time(), beat_at=time.time())
    started: asyncio.Queue[str] = asyncio.Queue()
    first = FirstStart(
        bus, "h", hosts=lambda: [host], scale=lambda: None, workers=list, start=started.put_nowait, clock=time.time
    )
    looked, look = asyncio.Event(), first._look

    async def note(**how: bool) -> bool:
        found = await look(**how)
        looked.set()
        return found

    monkeypatch.setattr(first, "_look", note)
    keeping = asyncio.create_task(first.keep())  # and not started, so that it hears of nothing
    try:
        async with asyncio.timeout(20):
            await looked.wait()
            assert started.empty()
            await ledger.submit("half", floats(1.0))
            assert await started.get() == "cpu-1"
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await first.close()
