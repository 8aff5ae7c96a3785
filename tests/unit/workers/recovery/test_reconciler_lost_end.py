"""The reconciler after NATS has lost the end of ``STATE`` and given its numbers again: what ended there is removed.

World 998 found it (docs/simulation.md).
"""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping

from signalbox.jobs import life
from signalbox.jobs.message import submit
from signalbox.jobs.records import Records
from signalbox.wire import jobids, names
from signalbox.wire.messages import Job, State
from signalbox.wire.names import Stream
from tests.rigs.submit import Ledger, floats
from verification.simulation.loop import EPOCH, running
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.server import Server
from workers.recovery.reconciler import PERIOD_S, REMOVAL_S, JobReconciler

SOON_S = 20.0
"""Some turns, and far below the time after which the queue is looked through once more."""


class Rig:
    """A modelled server, and a reconciler."""

    def __init__(self, server: Server, bus: ModelBus) -> None:
        self.server, self.bus, self.records = server, bus, Records(bus)
        self.reconciler = JobReconciler(
            bus, self.records, workers=list, models=dict, worker="w", boot="w", clock=self.now
        )

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def ended(self, model: str = "one") -> Job:
        """A job whose record has been written, and whose message has not been removed."""
        job_id = jobids.new_job_id(self.now(), uuid.uuid4().int)
        job = Ledger(self.bus).job(model, floats(1.0), id=job_id, created_at=self.now(), deadline_at=self.now() + 600)
        await submit(self.bus, job, floats(1.0))
        await self.records.write(life.cancelled(life.first_record(job, State.QUEUED), now=self.now()), expect=0)
        return job

    def queued(self) -> list[str]:
        """Models of the messages in ``JOBS``."""
        return [names.class_of(message.subject)[0] for message in self.server.streams[Stream.JOBS].msgs.values()]

    async def lose_the_last_record(self) -> None:
        is_back = asyncio.Event()
        self.bus.on_reconnect(is_back.set)
        self.server.kill({Stream.STATE: 1})
        self.server.start()
        await is_back.wait()


def play(script: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = Server(clock=lambda: EPOCH + loop.time(), rng=random.Random(1))
        server.declare()
        async with await ModelBus(server).open() as bus:
            await script(Rig(server, bus))

    with running(1) as loop:
        loop.run_until_complete(run())


def test_an_end_that_has_the_number_of_a_lost_one_is_read() -> None:
    async def script(rig: Rig) -> None:
        keeping = asyncio.create_task(rig.reconciler.keep())
        first = await rig.ended()
        await asyncio.sleep(PERIOD_S + SOON_S)  # the leader lease says by now how far STATE was read
        assert rig.queued() == []
        await rig.lose_the_last_record()
        second = await rig.ended()
        found = await rig.records.read(second.id)
        assert found is not None
        assert found[1] == 1, f"not the number that {first.id} had"
        await asyncio.sleep(SOON_S)
        assert rig.queued() == []
        keeping.cancel()

    play(script)


def test_a_reconnect_in_the_middle_of_a_turn_is_not_forgotten() -> None:
    async def script(rig: Rig) -> None:
        await rig.ended()
        rig.bus.on_reconnect(rig.reconciler._doubt)
        remove = rig.reconciler._removal.turn

        async def interrupted(jobs: Mapping[str, int]) -> None:
            rig.reconciler._removal.turn = remove  # type: ignore[method-assign]
            await rig.lose_the_last_record()
            await rig.ended("two")
            await remove(jobs)

        rig.reconciler._removal.turn = interrupted  # type: ignore[method-assign]
        await rig.reconciler.turn()
        await asyncio.sleep(REMOVAL_S)  # the leader lease still stands
        await rig.reconciler.turn(is_whole=False)
        assert rig.queued() == ["one"]  # its end is lost, so it may run again

    play(script)
