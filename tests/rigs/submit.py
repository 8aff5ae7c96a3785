"""Jobs put straight into the queue, and a ledger of every record that became of them."""

import asyncio
import secrets
import struct
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from signalbox.bus.client import Bus, Message
from signalbox.bus.table import put
from signalbox.wire import jobids, names, tensors
from signalbox.wire.messages import Job, Record, State, decode, header
from signalbox.wire.modeldocs import Batching, Limits, Model, Version
from signalbox.wire.names import Bucket, Header, Stream, token
from signalbox.wire.tensors import Tensor


def floats(*values: float, name: str = "x") -> bytes:
    """The frame of one float32 input of shape ``[len(values)]``."""
    return tensors.encode([Tensor(name, "float32", (len(values),), struct.pack(f"<{len(values)}f", *values))])


def read_floats(frame: bytes, name: str = "y") -> tuple[float, ...]:
    """The float32 values of one output of a frame."""
    found = {t.name: t for t in tensors.decode(frame)}[name]
    return struct.unpack(f"<{len(found.data) // 4}f", found.data)


async def register(
    bus: Bus,
    name: str,
    path: Path,
    *,
    versions: Sequence[int] = (1,),
    batching: Batching | None = None,
    limits: Limits | None = None,
    joined: tuple[str, ...] | None = ("serving_default",),
    **more: Any,
) -> Model:
    """Put a model where the console would. joined: what is known of its versions, None = it is to be tried."""
    model = Model(
        name=name,
        versions=tuple(Version(version=v, path=str(path), size_bytes=10_000, joined=joined) for v in versions),
        default_version=versions[-1],
        batching=batching or Batching(rows_independent=True),
        limits=limits or Limits(),
        updated_at=time.time(),
    )
    model = replace(model, **more)
    await put(bus, Bucket.MODELS, token(name), model)
    return model


class Ledger:
    """Submits jobs and writes down every record the server republishes, in order."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.records: dict[str, list[Record]] = defaultdict(list)
        self.reported: dict[str, bytes] = {}
        self.submitted: list[str] = []
        self._changed = asyncio.Event()
        self._reply = f"ledger{secrets.token_hex(4)}"

    async def start(self) -> "Ledger":
        """Listen to records and replies."""
        await self.bus.subscribe(names.event_of_state(), self._on_record)
        await self.bus.subscribe(names.reply(self._reply, "*"), self._on_reply)
        return self

    def job(self, model: str, body: bytes, **more: Any) -> Job:
        """A job as the gateway would make it."""
        now = time.time()
        job = Job(
            id=jobids.new_job_id(time.time(), uuid.uuid4().int),
            model=model,
            version=1,
            signature="serving_default",
            account_id="test",
            key_id="test key",
            batch_key="all",
            created_at=now,
            deadline_at=now + 900,
            size_bytes=len(body),
        )
        job = replace(job, reply=names.reply(self._reply, job.id))
        return replace(job, **more)

    async def submit(self, model: str, body: bytes, **more: Any) -> str:
        """Accept one job durably; returns its id."""
        job = self.job(model, body, **more)
        await self.bus.grouped(Stream.JOBS).write(
            names.job(job.model, job.priority, job.account_id, job.id),
            body if job.ref is None else b"",
            headers={Header.JOB: header(job)},
            expect=0,
        )
        self.submitted.append(job.id)
        return job.id

    def last(self, job_id: str) -> Record | None:
        """The newest record of a job."""
        return self.records[job_id][-1] if self.records.get(job_id) else None

    def open(self, ids: Iterable[str]) -> list[str]:
        """Those of ``ids`` that have not ended."""
        return [i for i in ids if (last := self.last(i)) is None or not last.state.is_terminal]

    async def until(self, condition: Any, *, timeout_s: float = 60.0) -> None:
        """Wait until ``condition()`` holds, looked at after each record and reply."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def begun(self, job_id: str) -> None:
        """Wait until a job has begun to run; it may have ended too by the time that this returns."""
        await self.until(lambda: any(r.state is State.RUNNING for r in self.records.get(job_id, ())))

    async def ended(self, *ids: str, timeout_s: float = 60.0) -> list[Record]:
        """Wait until all of ``ids`` (default: all submitted) have ended; their last records."""
        wanted = ids or tuple(self.submitted)
        try:
            await self.until(lambda: not self.open(wanted), timeout_s=timeout_s)
        except TimeoutError:
            left = self.open(wanted)
            raise AssertionError(
                f"{len(left)} of {len(wanted)} jobs did not end: {left[:5]} {[self.last(i) for i in left[:2]]}"
            ) from None
        return [last for i in wanted if (last := self.last(i)) is not None]

    async def result(self, job_id: str) -> bytes:
        """The stored output frame of a job."""
        found = await self.bus.leader_get(Stream.STATE, names.state(job_id))
        assert found is not None, job_id
        return found.data

    def _on_record(self, message: Message) -> None:
        record = decode(Record, message.headers[Header.RECORD])
        self.records[record.id].append(record)
        self._changed.set()

    def _on_reply(self, message: Message) -> None:
        self.reported[message.subject.rpartition(".")[2]] = message.data
        self._changed.set()
