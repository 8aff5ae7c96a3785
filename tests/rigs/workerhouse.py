"""What tests of a worker live in: a nats-server with our topology, whoever submits, and the worker itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import PATIENT_S
from tests.rigs.submit import Ledger
from tests.rigs.workerprocess import WorkerProcess


class House(NamedTuple):
    """A connection that may do all, a ledger and one worker, which holds its device."""

    bus: Bus
    ledger: Ledger
    worker: WorkerProcess


@asynccontextmanager
async def declared(folder: Path) -> AsyncIterator[tuple[str, Bus]]:
    """The url of a server with our topology, and a connection that may do all."""
    async with NatsServer(folder / "nats") as server:
        bus = await Bus.connect(Wire(nats_url=server.url, request_timeout_s=PATIENT_S), role="admin")
        try:
            await topology.apply(bus)
            yield server.url, bus
        finally:
            await bus.close()


@asynccontextmanager
async def house(folder: Path, **settings: object) -> AsyncIterator[House]:
    """A house whose worker is ``w1``. settings: of the worker, as :class:`WorkerProcess` takes them."""
    async with declared(folder) as (url, bus), WorkerProcess(url, folder, "w1", **settings) as worker:
        await worker.said("lease.acquired")
        yield House(bus, await Ledger(bus).start(), worker)
