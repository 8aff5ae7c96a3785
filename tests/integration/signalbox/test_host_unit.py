"""What the unit of an added host starts: the agent in the machine's own network, with its key alone."""

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.ops.host import adding
from signalbox.ops.nats.keys import Keys
from signalbox.program.settings import Wire
from signalbox.wire.names import Bucket
from signalbox.wire.roles import USERS
from signalbox.wire.scaling import Host
from signalbox.wire.workerdocs import Worker
from tests.integration.signalbox.test_host_add import options, settings
from tests.rigs import lightworker, wheels
from tests.rigs.natsserver import NatsServer, die_with_parent
from tests.rigs.sshhost import SshHost
from tests.rigs.submit import Ledger, floats, register
from verification.chaos.environment.proxy import Proxy

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network namespace and run an sshd")
PASSWORDS: dict[str, str] = {role: f"secret of {role}" for role in USERS}
WAIT_S = 120


async def test_an_added_host_serves_jobs_by_its_unit_with_its_key(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(1)
    (key,) = keys.all()
    wheel = await asyncio.to_thread(wheels.build, tmp_path)
    nats = NatsServer(tmp_path / "nats", users=PASSWORDS, hosts={key.name: key.public})
    with SshHost(tmp_path / "ssh") as machine:
        target = urlsplit(nats.url)
        async with nats, Proxy((target.hostname or "", target.port or 0), host=machine.address) as road:
            told = {
                "SIGNALBOX_NATS_URL": road.url,
                "SIGNALBOX_HOST_DEVICES": "cpu:0",
                "SIGNALBOX_HOST_WORKER": f"env PYTHONPATH={wheels.ROOT} {sys.executable} -m {lightworker.PROGRAM}",
            }
            words = [word for name, text in told.items() for word in ("--set", f"{name}={text}")]
            assert await asyncio.to_thread(adding.run, options(tmp_path, wheel, machine.ssh, *words)) == 0
            unit = (tmp_path / "units" / adding.UNIT).read_text()
            (line,) = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
            wire = Wire(nats_url=nats.url, nats_user="admin", nats_password=PASSWORDS["admin"])
            async with await Bus.connect(wire, role="admin") as bus:
                await topology.apply(bus)
                await register(bus, "half", lightworker.version("half"))
                ledger = await Ledger(bus).start()
                process = await asyncio.create_subprocess_exec(
                    *machine.inside(*shlex.split(line)),
                    cwd=tmp_path / "opt/data",
                    env={"PATH": os.environ["PATH"], **settings(tmp_path)},
                    preexec_fn=die_with_parent,
                )
                (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=WAIT_S)
                assert record.worker in {f"{key.name}-1", f"{key.name}-2"}
                hosts, workers = Table(bus, Bucket.HOSTS, Host), Table(bus, Bucket.WORKERS, Worker)
                await hosts.start()
                await workers.start()
                assert list(hosts.items()) == [key.name]
                assert set(workers.items()) <= {f"{key.name}-1", f"{key.name}-2"}
                await hosts.close()
                await workers.close()
                process.terminate()
                async with asyncio.timeout(WAIT_S):
                    assert await process.wait() == 0
            logs = (tmp_path / "opt/data/logs").glob("*")
            assert [path for path in logs if "permission_denied" in path.read_text()] == []
