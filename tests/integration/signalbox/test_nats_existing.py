"""A NATS that is somebody's already takes Signalbox's accounts in, as docs/deploy.md says."""

from pathlib import Path
from typing import Final

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer

THEIRS: Final = 'THEIRS: { jetstream: enabled, users: [ { user: "theirs", password: "of-theirs" } ] }'


class Existing(NatsServer):
    """A server whose accounts are not ours alone."""

    def _configuration(self) -> str:
        return super()._configuration().replace("accounts {\n", f"accounts {{\n  {THEIRS}\n", 1)


async def test_accounts_of_both_have_streams_of_one_name_and_see_nothing_of_each_other(tmp_path: Path) -> None:
    async with Existing(tmp_path, users={"admin": "of-admin", "admin-queues": "of-queues"}) as server:
        theirs = Wire(nats_url=server.url, nats_user="theirs", nats_password="of-theirs")
        ours = Wire(nats_url=server.url, nats_user="admin", nats_password="of-admin")
        async with await Bus.connect(theirs, role="admin") as them, await Bus.connect(ours, role="admin") as us:
            mine = {"name": "JOBS", "subjects": ["jobs.>"], "storage": "file"}
            await them.request_json("$JS.API.STREAM.CREATE.JOBS", mine)
            await topology.apply(us)
            assert await topology.check(us) == []
            await them.request_json("$JS.API.STREAM.UPDATE.JOBS", mine | {"max_msgs": 7})
            listed = await them.request_json("$JS.API.STREAM.NAMES", {})
            assert listed["streams"] == ["JOBS"]
            assert await topology.check(us) == []
