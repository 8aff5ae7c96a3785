"""How much of a model one purpose may have at once."""

import pytest

from gateway_plugin.outbound.accountjobs import AccountJobs
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire.modeldocs import Batching, Limits, Model
from signalbox.wire.workerdocs import Device, Worker
from tests.rigs.gateway import key, model

WIDE = Batching(rows_independent=True, max_size=8)


def worker(name: str, device: str) -> Worker:
    at = Device(id=device, kind="cpu", name=device)
    return Worker(id=name, boot="b", host="h", pid=1, state="ready", device=at, started_at=1.0, beat_at=1.0)


@pytest.mark.parametrize(
    ("served", "devices", "most"),
    [
        (model(), (), 2),  # the first job brings a worker
        (model(), ("a",), 2),
        (model(), ("a", "a"), 2),
        (model(batching=WIDE), ("a", "a"), 16),
        (model(batching=WIDE, replicas=2), ("a", "a", "b", "b"), 32),
        (model(batching=WIDE, limits=Limits(max_queue=20)), ("a", "a"), 5),
    ],
)
async def test_it_is_two_runs_of_each_device_however_many_workers_share_one(
    served: Model, devices: tuple[str, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = AccountJobs(Bus(Wire(), "outbound"), OutboundSettings())
    there = {f"w{number}": worker(f"w{number}", device) for number, device in enumerate(devices)}
    monkeypatch.setattr(jobs._workers, "items", lambda: there)
    monkeypatch.setattr(jobs._catalog, "find", lambda *_: served)
    try:
        assert jobs.most_in_flight(key().stored, served.name, 64) == most
    finally:
        await jobs.close()
