"""``/readyz``: whether a program can do its work, and why not."""

import asyncio
import contextlib
import http.client
import itertools
from pathlib import Path

from signalbox.bus import stalls
from signalbox.bus.client import Bus
from signalbox.bus.disk import Reserve
from signalbox.ops.ports import free_port
from signalbox.program import health, metrics
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer


async def ask(port: int, path: str = "/readyz", method: str = "GET") -> tuple[int, str]:
    def get() -> tuple[int, str]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as link:
            link.request(method, path)
            page = link.getresponse()
            return page.status, page.read().decode()

    return await asyncio.to_thread(get)


async def test_a_program_says_what_keeps_it_from_its_work(own_nats: NatsServer, tmp_path: Path) -> None:
    health.READY.clear()  # of tests before this one
    port = metrics.serve(free_port())
    assert await ask(port) == (503, f"{health.NOT_YET}\n")
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    assert await ask(port) == (200, "ready\n")
    assert await ask(port, method="HEAD") == (200, "")
    reserve = Reserve(str(tmp_path), 2**62)
    assert await ask(port) == (503, "\n".join([*reserve.faults(), ""]))
    health.READY.remove(reserve)
    times = itertools.chain([0.0], itertools.repeat(stalls.STALLED_S))
    bus.stalls = stalls.Stalls(lambda: next(times))
    for _ in range(2):
        bus.stalls.lost("jobs.m.mid.1")
    assert await ask(port) == (503, f"jobs.>: {stalls.WHY}\n")
    is_away = asyncio.Event()
    bus.on_disconnect(is_away.set)
    await own_nats.kill()
    async with asyncio.timeout(60):
        await is_away.wait()
    assert await ask(port) == (503, "NATS cannot be reached.\n")
    await bus.close()
    status, text = await ask(port, "/metrics")
    assert status == 200
    assert "signalbox_nats_stalled_streams" in text
