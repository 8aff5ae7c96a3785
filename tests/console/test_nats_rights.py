"""Everything the console does on NATS works with the rights of its own NATS user, and no more."""

from pathlib import Path

import pytest

from console.accounts.rights import system_actor
from console.controller.reconciler import ConsoleReconciler
from console.fleet import services as fleet
from console.keys import services as keys
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.outbox.services import post, post_document
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.jobs.records import Records
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire import messages, modeldocs, names
from signalbox.wire.names import Bucket
from tests.console.conftest import in_thread
from tests.console.test_jobs import make
from tests.console.test_live_feed import watching
from tests.console.test_projector import accept, accepted, projecting, run_job, states, until
from tests.console.traffic import GPU, Railway, submit
from tests.console.traffic import accepted as job_of
from tests.rigs.natsserver import NatsServer

pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")
PASSWORDS = {"admin": "admin-secret", "console": "console-secret"}


async def connect(server: NatsServer, role: str) -> Bus:
    """A connection of one role's user."""
    wire = Wire(nats_url=server.url, nats_user=role, nats_password=PASSWORDS[role])
    return await Bus.connect(wire, role=role)


async def test_the_console_s_own_nats_user_may_do_what_the_console_does(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server:
        admin, bus = await connect(server, "admin"), await connect(server, "console")
        try:
            await topology.apply(admin)
            first, second = accepted(1), accepted(2)
            async with projecting(bus):
                await in_thread(post_document, Bucket.MODELS, "digits", modeldocs.Model(name="digits"), name="digits")
                await in_thread(keys.create, ME, keys.KeyGrant(name="a"))
                ran = await in_thread(make, 1, worker="w1", gpu="GPU-1")
                await in_thread(lambda: fleet.drain(ME, "w1", is_draining=True))
                await in_thread(lambda: fleet.ask_release(ME, "GPU-1"))
                await in_thread(ran.delete)
                await in_thread(post, OutboxEntry(kind=OutboxEntry.CANCEL, key=second.id))
                await accept(admin, first)
                await accept(admin, second)
                await Publisher(bus, 5).publish_due()
                await run_job(admin, first)
                await until(lambda: states() == {first.id: "succeeded", second.id: "cancelled"})
            assert not await in_thread(OutboxEntry.objects.filter(published_at=None).exists)
            reconciler = ConsoleReconciler(bus, every_s=60, vanished_after_s=0)
            await reconciler.repost_lost_documents()
            await reconciler.settle_vanished_jobs()
            with pytest.raises(SignalboxError):
                await bus.write(names.key(Bucket.LEASES, "GPU-1"), b"mine", timeout_s=0.5)
            found = await Records(bus).read(second.id)
            assert found is not None
            assert found[0].state is messages.State.CANCELLED
        finally:
            await bus.close()
            await admin.close()


async def test_the_live_board_needs_no_more_than_the_console_s_rights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server:
        admin = await connect(server, "admin")
        await topology.apply(admin)
        railway = Railway(admin)
        await railway.lay_track({"digits": 2})
        await railway.acquire("worker-a")
        await submit(admin, job_of("digits"))
        wire = Wire(nats_url=server.url, nats_user="console", nats_password=PASSWORDS["console"])
        async with watching(wire) as (_, viewer):
            await viewer.until(lambda: viewer.row("lanes", GPU.id).get("holder") == "worker-a")
            await viewer.until(lambda: viewer.row("queues", "digits").get("waiting") == 1)
            await viewer.until(lambda: viewer.row("health", "dead").get("state") == "ok")
            await railway.renew()
        await admin.close()
    assert "permission_denied" not in capsys.readouterr().err
