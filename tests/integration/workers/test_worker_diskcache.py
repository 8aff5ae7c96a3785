"""Models of repositories in an object store: fetched by real workers from a real S3 into the host's disk cache."""

from pathlib import Path
from typing import Any

from signalbox.wire.messages import State
from tests.rigs import models, workerhouse
from tests.rigs.objectstore import ObjectStoreServer
from tests.rigs.remotemodels import RemoteModels
from tests.rigs.submit import Ledger, floats, read_floats
from tests.rigs.workerprocess import WorkerProcess


async def answered(ledger: Ledger, *ids: str) -> list[float]:
    """The first value that each of the jobs is answered with."""
    records = await ledger.ended(*ids)
    assert [(record.state, record.error) for record in records] == [(State.SUCCEEDED, None)] * len(ids)
    await ledger.until(lambda: all(one in ledger.reported for one in ids))
    return [read_floats(ledger.reported[one])[0] for one in ids]


def seen(worker: WorkerProcess, event: str) -> list[dict[str, Any]]:
    return [line for line in worker.lines if line.get("event") == event]


async def test_a_job_of_a_model_in_an_object_store_is_answered(tmp_path: Path, object_store: ObjectStoreServer) -> None:
    async with workerhouse.declared(tmp_path) as (url, bus):
        remote = RemoteModels(bus, object_store, tmp_path)
        folder = models.half_plus_two()
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        await remote.publish("half_plus_two", files)
        ledger = await Ledger(bus).start()
        settings = remote.settings(tmp_path / "cache")
        async with WorkerProcess(url, tmp_path, "w1", log_level="DEBUG", **settings) as worker:
            job = await ledger.submit("half_plus_two", floats(4.0))
            assert await answered(ledger, job) == [4.0]
            assert seen(worker, "cache.fetched")
            assert seen(worker, "model.staged")[0]["how"].keys() <= {"cloned", "linked"}, "nothing is copied"
