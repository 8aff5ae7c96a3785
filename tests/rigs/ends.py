"""Jobs that have ended, and followers of their records (:mod:`gateway_plugin.outbound.follower`)."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Self

from msgspec.structs import replace

from gateway_plugin.outbound.follower import follow
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus.client import Bus, Stored
from signalbox.bus.table import put
from signalbox.jobs import life, payloads, times
from signalbox.jobs.records import Records
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import ErrorInfo, Job, decode, encode
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import End, FollowerPosition, Subscription
from tests.rigs.streams import PATIENT_S
from tests.rigs.submit import Ledger, floats

POSITION = names.key(Bucket.DUTIES, outboundnames.FOLLOWER_POSITION)


class EndsRig:
    """Jobs that end, and followers. own: the connections of followers, by their tasks."""

    def __init__(self, bus: Bus, url: str) -> None:
        self.bus, self.ledger, self.records = bus, Ledger(bus), Records(bus)
        self.own: dict[asyncio.Task[None], Bus] = {}
        self._url = url
        self.wire = Wire(nats_url=url, request_timeout_s=PATIENT_S)

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, bus: Bus, url: str) -> AsyncIterator[Self]:
        """One on a NATS; its followers are stopped at the end."""
        made = cls(bus, url)
        yield made
        for task in list(made.own):
            await made.stop(task)

    async def follow(self, **settings: Any) -> asyncio.Task[None]:
        """Start a follower on a connection of its own; it begins anew where it fails."""
        bus = await Bus.connect(self.wire, role="outbound")
        made = OutboundSettings(nats_url=self._url, **settings)

        async def again() -> None:
            while True:
                try:
                    await follow(bus, made)
                except SignalboxError:
                    await asyncio.sleep(0.01)

        task = asyncio.create_task(again())
        self.own[task] = bus
        return task

    async def kill(self, task: asyncio.Task[None]) -> None:
        """End a follower without a word: its connection is gone first."""
        bus = self.own.pop(task)
        await bus.close()
        await self._ended(task)

    async def stop(self, task: asyncio.Task[None]) -> None:
        """End a follower as its program does."""
        await self._ended(task)
        await self.own.pop(task).close()

    async def _ended(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def connected(self) -> None:
        """Return when NATS has the streams again."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.bus.flush()
                except SignalboxError:
                    await asyncio.sleep(0.01)

    async def subscribe(self, name: str = "s", **which: Any) -> None:
        await put(self.bus, Bucket.SUBSCRIPTIONS, name, Subscription(id=name, **which))

    async def ended(
        self, body: bytes = b"", *, error: str = "", batch: int = 1, run_at: float = 0.0, **job: Any
    ) -> Job:
        """A job that has run and ended. run_at: when its run began, with the others of its batch."""
        made = self.ledger.job(job.pop("model", "half"), b"", **job)
        stages = ((times.RUN, run_at or time.time()),)
        record = life.claimed(made, None, worker="w", gpu="g", token=1, now=time.time(), stages=stages)
        revision = await self.records.write(record, expect=0)
        if error:
            done = life.failed(record, ErrorInfo(code="model_error", message=error), now=time.time(), stages=stages)
        elif len(body) > payloads.INLINE_LIMIT_BYTES:
            ref = await payloads.store(self.bus, made.account_id, made.id, "out1", body)
            done = life.succeeded(record, now=time.time(), stages=stages, batch=batch, size_bytes=len(body), ref=ref)
            body = b""
        else:
            body = body or floats(0.5, 1.5, name="y")
            done = life.succeeded(record, now=time.time(), stages=stages, batch=batch, size_bytes=len(body))
        await self.records.write(done, body, expect=revision)
        return made

    async def stored(self) -> list[Stored]:
        return await self.bus.list_latest(Stream.RESULTS, ["results.>"])

    async def until(self, number: int) -> list[End]:
        """The ends in the stream, once there are so many."""
        async with asyncio.timeout(60):
            while len(found := await self.stored()) < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return [decode(End, stored.data) for stored in found]

    async def position(self) -> FollowerPosition:
        stored = await self.bus.leader_get(Bucket.DUTIES.stream, POSITION)
        return decode(FollowerPosition, stored.data) if stored is not None else FollowerPosition()

    async def until_past(self, job: Job) -> None:
        """Return when the kept position is above a job's record."""
        found = await self.records.read(job.id)
        assert found is not None
        async with asyncio.timeout(60):
            while (await self.position()).state_seq <= found[1]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def is_reading(self) -> None:
        """Return when a follower has its consumer: it reads what is stored from now on."""
        async with asyncio.timeout(60):
            while not (await self._consumers()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _consumers(self) -> int:
        info = await self.bus.request_json("$JS.API.STREAM.INFO.STATE")
        return int(info["state"]["consumer_count"])

    async def rewind(self, job: Job) -> None:
        """Put the kept position before a job's record, as if the follower had not come so far."""
        found = await self.records.read(job.id)
        stored = await self.bus.leader_get(Bucket.DUTIES.stream, POSITION)
        assert found is not None
        assert stored is not None
        position = replace(decode(FollowerPosition, stored.data), state_seq=found[1])
        await self.bus.write(POSITION, encode(position), expect=stored.seq)
