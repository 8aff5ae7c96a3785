"""Loads that use the memory up: a real worker and a real runner around a toy engine of limited size."""

from pathlib import Path
from typing import Any

from signalbox.wire.messages import Record, State
from tests.rigs import workerhouse
from tests.rigs.submit import floats, register
from tests.rigs.workerprocess import WorkerProcess


def seen(worker: WorkerProcess, event: str) -> list[dict[str, Any]]:
    return [line for line in worker.lines if line.get("event") == event]


def without_penalty(records: list[Record]) -> bool:
    return {(record.strikes, record.attempt) for record in records} == {(0, 1)}


async def test_a_load_that_uses_the_memory_up_is_tried_once_more_alone_in_a_fresh_runner(tmp_path: Path) -> None:
    async with workerhouse.house(tmp_path, program="verification.chaos.rig.toyworker") as house:
        bus, ledger, worker = house
        for name in ("half", "large", "huge"):
            await register(bus, name, tmp_path)
        beside = await ledger.ended(await ledger.submit("half", floats(1.0)))
        assert not seen(worker, "runner.died")

        alone = await ledger.ended(*[await ledger.submit("large", floats(1.0)) for _ in range(3)])
        assert {record.state for record in beside + alone} == {State.SUCCEEDED}
        assert without_penalty(beside + alone)
        assert len(seen(worker, "runner.died")) == 1

        never = await ledger.ended(*[await ledger.submit("huge", floats(1.0)) for _ in range(3)])
        never += await ledger.ended(await ledger.submit("huge", floats(1.0)))
        assert {record.state for record in never} == {State.FAILED}
        assert {record.error.code for record in never if record.error} == {"out_of_memory"}
        assert without_penalty(never)
        assert len(seen(worker, "runner.died")) == 2, "what is known of it ends no further runner"

        (again,) = await ledger.ended(await ledger.submit("half", floats(1.0)))
        assert again.state is State.SUCCEEDED
        assert not seen(worker, "input.quarantined")
