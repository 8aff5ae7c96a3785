"""Presence on a real NATS: whatever a worker has to tell, it stays in the table."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from signalbox.bus.table import Table
from signalbox.wire.messages import Device, Residency, Worker
from signalbox.wire.names import Bucket, token
from tests.rigs import workerhouse
from workers.host.presence import Presence
from workers.statistics.worker import Statistics


async def test_a_worker_that_has_seen_thousands_of_models_stays_in_the_fleet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statistics = Statistics()
    for n in range(5_000):
        statistics.ran(f"model-{n}", jobs=1, seconds=0.01, size_bytes=8)
    few = Worker(
        id="w1",
        boot="b",
        host="h",
        pid=1,
        state="ready",
        started_at=1.0,
        beat_at=1.0,
        device=Device(id="CPU-h-0", kind="cpu", name="virtual"),
        rates=statistics.rates(),
    )
    failed = tuple(
        Residency(model=f"model-{n}", version=1, state="failed", error="no such file " * 100) for n in range(5_000)
    )
    documents = [few, replace(few, models=failed), replace(few, models=failed)]
    async with workerhouse.declared(tmp_path) as (_, bus):
        presence = Presence(bus, "w1", lambda: documents[0], period_s=2.0, ttl_s=60)
        table = Table(bus, Bucket.WORKERS, Worker)
        await table.start()
        for document in documents.copy():
            documents[0] = document
            await presence.write()
        await bus.flush()
        await table.close()
        await table.start()
        found = table.get(token("w1"))
        await table.close()
    assert found is not None
    assert "model-4999" in found.rates
    assert 100 < len(found.models) < 5_000
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["models"] for line in lines if line["event"] == "presence.shortened"] == [5_000]
