"""``python -m gateway_plugin.outbound`` as a process, with its own NATS user: killed, and followed by another copy."""

import os
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Final

from standardwebhooks import Webhook as Verifier

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import State, decode, encode
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Delivery, End, HookSecret, Webhook
from signalbox.wire.roles import ROLES
from tests.rigs.logged import LoggedServer
from tests.rigs.natsserver import NatsServer
from tests.rigs.receiver import OK, Receiver, silence

ROOT: Final = Path(__file__).parents[3]
HOOK: Final = "wh1"
JOB: Final = "00000000-0000-4000-8000-000000000001"
SECRET: Final = "whsec_" + b64encode(b"k" * 24).decode()
PASSWORDS: Final[dict[str, str]] = {role: f"secret of {role}" for role in ROLES}


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
        "SIGNALBOX_WEBHOOK_NETWORKS": "127.0.0.0/8",
        "SIGNALBOX_OUTBOUND_DUTY_S": "1",
        "SIGNALBOX_OUTBOUND_HOOK_TOTAL_S": "2",
    }
    argv = [sys.executable, "-m", "gateway_plugin.outbound"]
    return LoggedServer(argv, "outbound.duty_taken", folder, env | {"PYTHONPATH": str(ROOT)} | settings)


async def test_a_copy_that_is_killed_during_a_delivery_leaves_it_to_the_next_under_one_id(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server, Receiver(silence, OK).serving() as receiver:
        admin, console = await connect(server, "admin"), await connect(server, "console")
        try:
            await topology.apply(admin)
            await put(console, Bucket.HOOK_SECRETS, names.hook_secret(HOOK, "s1"), HookSecret(secret=SECRET))
            hook = Webhook(id=HOOK, account_id="a1", url=receiver.url, secret="s1", enabled_at=time.time() - 60)
            await put(console, Bucket.WEBHOOKS, HOOK, hook)
            end = End(
                request_id=JOB,
                state=State.SUCCEEDED,
                account="a1",
                model="half",
                version=1,
                created_at=1.0,
                finished_at=2.0,
            )
            await admin.write(names.result("a1", "half", JOB), encode(end), expect=0)
            with copy(server, tmp_path):
                await receiver.count(1)
            with copy(server, tmp_path):
                first, second = await receiver.count(2, timeout_s=60.0)
                assert first.headers["webhook-id"] == second.headers["webhook-id"]
                assert Verifier(SECRET).verify(second.body, second.headers)["data"]["request_id"] == JOB
                _, body = await console.request(names.ask_delivery(HOOK), JOB.encode())
                assert decode(Delivery, body).status == 200
                await receiver.count(3)
        finally:
            await admin.close()
            await console.close()
