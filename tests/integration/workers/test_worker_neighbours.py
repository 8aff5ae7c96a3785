"""Models of others: what one reads of another on a real worker, with its runner in its sandbox."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from signalbox.wire.messages import State
from tests.rigs import lightworker, models, workerhouse
from tests.rigs.hostilemodel import PEEKED_BYTES, curious
from tests.rigs.submit import floats, register
from tests.rigs.workerhouse import House
from tests.rigs.workerprocess import WorkerProcess
from workers.sandbox import landlock

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock"),
]
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("neighbours")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(folder: Path) -> AsyncIterator[House]:
    roots = f"{models.half_plus_two().parent},{curious().parent}"
    async with workerhouse.house(folder, worker_model_folders=roots, worker_staging_dir=folder / "staging") as made:
        await register(made.bus, "neighbour", models.half_plus_two())
        (record,) = await made.ledger.ended(await made.ledger.submit("neighbour", floats(1.0)), timeout_s=LIMIT_S)
        assert record.state is State.SUCCEEDED
        await register(made.bus, "curious", curious())
        yield made


@pytest.mark.parametrize("signature", ["map", "vocabulary"])
async def test_a_model_reads_nothing_of_its_neighbour(house: House, signature: str) -> None:
    _, ledger, _ = house
    job = await ledger.submit("curious", floats(1.0), signature=signature)
    (record,) = await ledger.ended(job, timeout_s=LIMIT_S)
    theirs = (models.half_plus_two() / "saved_model.pb").read_bytes()[:PEEKED_BYTES]
    assert theirs not in await ledger.result(job)
    assert record.state is State.FAILED
    assert record.error is not None
    assert re.search(r"Permission denied|No such file", record.error.message), record.error


async def test_what_the_runner_was_shown_is_gone_when_it_has_loaded(house: House, folder: Path) -> None:
    (staging,) = (folder / "staging").iterdir()
    assert [path.name for path in staging.iterdir()] == ["lock"]


async def test_a_worker_removes_what_one_that_was_killed_left(house: House, folder: Path) -> None:
    staging = folder / "staging"
    (living,) = staging.iterdir()
    url, settings = house.worker.url, {"worker_staging_dir": staging, "worker_lock_dir": folder / "other"}
    async with WorkerProcess(url, folder, "w2", program=lightworker.PROGRAM, **settings) as second:
        await second.ready()
        (left,) = set(staging.iterdir()) - {living}
        await second.kill()
    assert left.exists()
    async with WorkerProcess(url, folder, "w3", program=lightworker.PROGRAM, **settings) as third:
        await third.ready()
        assert not left.exists()
        assert living.exists()
    assert set(staging.iterdir()) == {living}
