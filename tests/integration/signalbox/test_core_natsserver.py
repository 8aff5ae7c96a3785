"""Our nats-server child: it keeps its port and data, says why it cannot start, and dies with its parent."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.bus.client import Bus
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.names import Stream
from tests.rigs.natsserver import NatsServer


async def test_a_restart_keeps_port_and_data(own_nats: NatsServer) -> None:
    before = (own_nats.port, own_nats.pid)
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    await bus.write("st.a", b"kept", expect=0)
    await bus.close()
    await own_nats.restart()
    assert own_nats.port == before[0]
    assert own_nats.pid not in {0, before[1]}
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    stored = await bus.leader_get(Stream.STATE, "st.a")
    assert stored is not None
    assert stored.data == b"kept"
    await bus.close()


async def test_stopping_twice_is_harmless_and_leaves_no_process(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    await server.start()
    pid = server.pid
    await server.stop()
    await server.stop()
    assert server.pid == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_taken_port_is_named(own_nats: NatsServer, tmp_path: Path) -> None:
    second = NatsServer(tmp_path / "second", port=own_nats.port)
    with pytest.raises(Unavailable, match="address already in use"):
        await second.start()


async def test_it_dies_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    text = (
        "import asyncio, sys\n"
        "from tests.rigs.natsserver import NatsServer\n"
        "async def main():\n"
        f"    async with NatsServer({str(tmp_path)!r}) as server:\n"
        "        print(server.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", text, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    async with asyncio.timeout(60):
        child = int(await parent.stdout.readline())
    watch = os.pidfd_open(child)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    ready, _, _ = await asyncio.to_thread(select.select, [watch], [], [], 10)
    os.close(watch)
    assert ready
