"""Our nats-server child: it keeps its port and data, says why it cannot start, and dies with its parent."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops import natsserver
from signalbox.program.errors import Misconfigured, Unavailable
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


async def test_a_store_without_accounts_is_carried_over_into_ours_with_all_that_is_in_it(tmp_path: Path) -> None:
    store = tmp_path / "nats" / "store"
    async with NatsServer(tmp_path / "nats") as before:
        bus = await Bus.connect(Wire(nats_url=before.url), role="admin")
        await topology.apply(bus)
        written = await bus.write("st.a", b"kept", expect=0)
        at = await topology.last_sequences(bus)
        await bus.close()
    assert natsserver.name_main_account(store)
    assert not natsserver.name_main_account(store)
    async with NatsServer(tmp_path / "nats", users={"admin": "a", "admin-queues": "q"}) as after:
        bus = await Bus.connect(Wire(nats_url=after.url, nats_user="admin", nats_password="a"), role="admin")
        assert await topology.check(bus) == []
        assert await topology.last_sequences(bus) == at
        stored = await bus.leader_get(Stream.STATE, "st.a")
        assert stored is not None
        assert (stored.data, stored.seq) == (b"kept", written)
        await bus.close()
        login = Wire(nats_url=after.url, nats_user="admin-queues", nats_password="q")
        async with await Bus.connect(login, role="admin") as queue_bus:
            assert await queue_bus.listed("$JS.API.STREAM.NAMES", "streams") == []
    assert not natsserver.name_main_account(store)


async def test_two_stores_with_streams_are_for_a_person_to_choose_from(tmp_path: Path) -> None:
    for account in ("$G", "SIGNALBOX"):
        (tmp_path / "jetstream" / account / "streams" / "JOBS").mkdir(parents=True)
    with pytest.raises(Misconfigured, match="have streams"):
        natsserver.name_main_account(tmp_path)
    assert {path.name for path in (tmp_path / "jetstream").iterdir()} == {"$G", "SIGNALBOX"}


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
