"""``python -m gateway_plugin.outbound`` as a process, with its own NATS user: killed, and followed by another copy."""

import asyncio
import os
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from standardwebhooks import Webhook as Verifier

from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.program.settings import Wire
from signalbox.wire import outboundnames
from signalbox.wire.messages import State, decode, encode
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Delivery, End, HookSecret, Webhook
from signalbox.wire.queues import Queue, QueueState
from signalbox.wire.roles import USERS
from tests import depth
from tests.rigs.logged import LoggedServer
from tests.rigs.natsserver import NatsServer
from tests.rigs.receiver import OK, Receiver, silence

ROOT: Final = Path(__file__).parents[3]
HOOK: Final = "wh1"
SECRET: Final = "whsec_" + b64encode(b"k" * 24).decode()
PASSWORDS: Final[dict[str, str]] = {role: f"secret of {role}" for role in USERS}


async def connect(server: NatsServer, role: str) -> Bus:
    wire = Wire(nats_url=server.url, nats_user=role, nats_password=PASSWORDS[role], request_timeout_s=20.0)
    return await Bus.connect(wire, role=role)


def copy(server: NatsServer, folder: Path) -> LoggedServer:
    """A copy of the program, which has its own rights and no others."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    settings = {
        "SIGNALBOX_NATS_URL": server.url,
        "SIGNALBOX_NATS_USER": "outbound",
        "SIGNALBOX_NATS_PASSWORD": PASSWORDS["outbound"],
        "SIGNALBOX_QUEUES_NATS_USER": "outbound-queues",
        "SIGNALBOX_QUEUES_NATS_PASSWORD": PASSWORDS["outbound-queues"],
        "SIGNALBOX_WEBHOOK_NETWORKS": "127.0.0.0/8",
        "SIGNALBOX_OUTBOUND_DUTY_S": "1",
        "SIGNALBOX_OUTBOUND_HOOK_TOTAL_S": "2",
    }
    argv = [sys.executable, "-m", "gateway_plugin.outbound"]
    return LoggedServer(argv, "outbound.duty_taken", folder, env | {"PYTHONPATH": str(ROOT)} | settings)


@asynccontextmanager
async def told(folder: Path, receiver: Receiver) -> AsyncIterator[tuple[NatsServer, Bus, Bus]]:
    """A server with a webhook to the receiver, and connections as admin and as console."""
    async with NatsServer(folder / "nats", users=PASSWORDS) as server, receiver.serving():
        admin, console = await connect(server, "admin"), await connect(server, "console")
        try:
            await topology.apply(admin)
            await put(console, Bucket.HOOK_SECRETS, outboundnames.hook_secret(HOOK, "s1"), HookSecret(secret=SECRET))
            hook = Webhook(id=HOOK, account_id="a1", url=receiver.url, secret="s1", enabled_at=time.time() - 60)
            await put(console, Bucket.WEBHOOKS, HOOK, hook)
            yield server, admin, console
        finally:
            await admin.close()
            await console.close()


async def end(bus: Bus, number: int = 1) -> str:
    """Write the end of a job as the follower does."""
    job_id = f"00000000-0000-4000-8000-{number:012x}"
    doc = End(
        request_id=job_id,
        state=State.SUCCEEDED,
        account="a1",
        model="half",
        version=1,
        created_at=1.0,
        finished_at=2.0,
    )
    await bus.write(outboundnames.result("a1", "half", job_id), encode(doc), expect=0)
    return job_id


async def test_a_copy_that_is_killed_during_a_delivery_leaves_it_to_the_next_under_one_id(tmp_path: Path) -> None:
    receiver = Receiver(silence, OK)
    async with told(tmp_path, receiver) as (server, admin, console):
        job_id = await end(admin)
        with copy(server, tmp_path):
            await receiver.count(1)
        with copy(server, tmp_path):
            first, second = await receiver.count(2, timeout_s=60.0)
            assert first.headers["webhook-id"] == second.headers["webhook-id"]
            assert Verifier(SECRET).verify(second.body, second.headers)["data"]["request_id"] == job_id
            _, body = await console.request(outboundnames.ask_delivery(HOOK), job_id.encode())
            assert decode(Delivery, body).status == 200
            await receiver.count(3)


async def test_of_many_ends_none_is_lost_by_kills_and_each_has_one_id(tmp_path: Path) -> None:
    receiver = Receiver()
    many = depth.at(short=60, full=500)
    async with told(tmp_path, receiver) as (server, admin, _):
        jobs = {await end(admin, number) for number in range(many)}
        for share in (0.2, 0.4, 0.6):
            with copy(server, tmp_path):
                await receiver.count(int(many * share))
        with copy(server, tmp_path):
            await receiver.named(many, timeout_s=60.0)
        by_id: dict[str, set[str]] = {}
        for got in receiver.received:
            job_id = Verifier(SECRET).verify(got.body, got.headers)["data"]["request_id"]
            by_id.setdefault(got.headers["webhook-id"], set()).add(job_id)
        assert sorted(job_id for found in by_id.values() for job_id in found) == sorted(jobs)
        at_once = OutboundSettings().hook_at_once
        assert len(receiver.received) <= many + 3 * at_once, "only what was under way at a kill comes again"


async def test_a_queue_is_made_by_the_copy_that_has_the_task_and_told_by_the_next(tmp_path: Path) -> None:
    async with told(tmp_path, Receiver()) as (server, _, console):
        states, is_new = Table(console, Bucket.QUEUE_STATES, QueueState), asyncio.Event()
        states.on_change(lambda *_: is_new.set())
        await states.start()
        for name in ("first", "second"):
            with copy(server, tmp_path) as outbound:
                nice = os.getpriority(os.PRIO_PROCESS, outbound.pid)
                assert nice > os.getpriority(os.PRIO_PROCESS, 0), "it gives way to those who answer callers"
                await put(console, Bucket.QUEUES, name, Queue(name=name, account_id="acme"))
                async with asyncio.timeout(60):
                    while (state := states.get(name)) is None or state.state != "running":
                        is_new.clear()
                        await is_new.wait()
                assert [group.name for group in state.source.groups] == ["eas"]
        await states.close()
