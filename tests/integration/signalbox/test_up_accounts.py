"""The NATS accounts of ``signalbox up``: what an earlier version kept goes on, and each program has its users."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from signalbox.bus import queues, topology
from signalbox.bus.client import Bus
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.settings import PREFIX, Wire, load
from signalbox.wire.names import Stream
from signalbox.wire.queues import Queue
from tests.rigs.natsserver import NatsServer


@asynccontextmanager
async def up(folder: Path, said: list[str]) -> AsyncIterator[UpStack]:
    """NATS of a stack, without its programs."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, said.append)
        try:
            await stack.start_nats()
            yield stack
        finally:
            await stack.stop()


async def test_what_a_stack_without_accounts_kept_is_there_in_the_account_it_has_now(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats") as before:
        bus = await Bus.connect(Wire(nats_url=before.url), role="admin")
        await topology.apply(bus)
        written = await bus.write("st.a", b"kept", expect=0)
        await bus.close()
    for is_first in (True, False):
        said: list[str] = []
        async with up(tmp_path, said) as stack:
            stored = await stack.bus.leader_get(Stream.STATE, "st.a")
            assert stored is not None
            assert (stored.data, stored.seq) == (b"kept", written)
        assert said == (["what NATS keeps has moved into its account SIGNALBOX, beside the one of queues"] * is_first)


async def test_programs_of_queues_have_a_user_in_each_account_and_others_one(tmp_path: Path) -> None:
    async with up(tmp_path, []) as stack:
        for role in ("gateway", "outbound"):
            settings = logins(stack, role)
            async with (
                await Bus.connect(settings, role=role) as bus,
                await queues.connect(settings, role=role) as other,
            ):
                await topology.require(bus)
                assert await topology.stream_info(other, "JOBS") is None
        await queues_by(logins(stack, "outbound"))
        for role in ("worker", "console"):
            assert "SIGNALBOX_QUEUES_NATS_USER" not in stack.env(role)


def logins(stack: UpStack, role: str) -> Wire:
    """The users that a program is given."""
    return load(Wire, PREFIX, {name: text for name, text in stack.env(role).items() if "_NATS_" in name})


async def queues_by(outbound: Wire) -> None:
    """A queue is made by the outbound program's second user, and by no first one."""
    async with await queues.connect(outbound, role="outbound") as bus:
        await queues.declare(bus, Queue(name="texts", account_id="acme"))
        limits = (await bus.request_json("$JS.API.INFO"))["limits"]
        assert limits["max_storage"] > 0
    async with await Bus.connect(replace(outbound, queues_nats_user=""), role="outbound") as bus:
        assert await topology.stream_info(bus, "Q_texts_source") is None
