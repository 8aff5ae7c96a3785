"""A holder at a node that leads and is cut off from the others: it keeps what it has until its deadline."""

from pathlib import Path

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire.names import Bucket
from tests.integration.signalbox.test_core_majority import LIMIT_S, done, leads
from tests.integration.workers.test_lease_devices import QUICK, Worker
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from verification.chaos.environment.routes import NodeRoutes


async def test_heartbeats_that_wait_for_a_majority_cost_the_lease_at_its_deadline_not_before(
    three: tuple[list[NatsServer], NodeRoutes], tmp_path: Path
) -> None:
    servers, routes = three
    bus = await Bus.connect(Wire(nats_url=servers[0].url, request_timeout_s=1.0), role="admin")

    await becomes(done(lambda: topology.apply(bus, 3)), limit_s=LIMIT_S)
    await becomes(lambda: leads(bus, servers[0], Bucket.LEASES.stream), limit_s=LIMIT_S)
    log = tmp_path / "w1.log"
    worker = await Worker.start(
        {
            "url": servers[0].url,
            "worker": "w1",
            "lock_dir": str(tmp_path / "locks"),
            "interval_log": str(tmp_path / "intervals"),
            "rules": QUICK,
            "is_yielding": False,
        },
        log,
    )
    try:
        await worker.receive("held")
        routes.cut(0)
        await worker.receive("lost")
        assert '"why":"deadline","event":"lease.lost"' in log.read_text()
    finally:
        worker.kill()
        await worker.process.wait()
        await bus.close()
