"""Puts jobs straight into ``JOBS``, as a gateway would, and counts their ends as the server republishes them."""

import asyncio
import itertools
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from signalbox.bus.client import Bus, Message
from signalbox.bus.writes import GroupedWrite
from signalbox.wire import names, tensors
from signalbox.wire.jobids import JobIds
from signalbox.wire.messages import Job, header
from signalbox.wire.names import Header, Stream
from signalbox.wire.tensors import Tensor

GROUP: Final = 500
"""Jobs handed to the group writer at once."""
DEADLINE_S: Final = 86_400.0
"""None expires, however long filling takes."""
_ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})


class End(msgspec.Struct):
    """What a record tells of a job's end. phases: milliseconds since the job was accepted."""

    id: str
    state: str
    worker: str = ""
    phases: dict[str, float] = {}


_end: Final = msgspec.json.Decoder(End).decode


def body_of(value: float, size: int = 0) -> bytes:
    """The frame of one number, with as many bytes beside it as make ``size``."""
    number = Tensor("x", "float32", (1,), struct.pack("<f", value))
    if not size:
        return tensors.encode([number])
    return tensors.encode([number, Tensor("pad", "uint8", (size,), bytes(size))])


class Jobs:
    """Jobs of ``models`` in turn, and what became of them. ended: how many ended, by state.

    by_worker: the same by who ended them. last_at: when the newest end was announced, on the monotonic clock.
    """

    def __init__(self, bus: Bus, models: Sequence[str], body: bytes) -> None:
        self.ended: Counter[str] = Counter()
        self.by_worker: Counter[str] = Counter()
        self.last_at = 0.0
        self._bus = bus
        self._queued = 0
        self._models = itertools.cycle(models)
        self._body = body
        self._waiting: dict[str, asyncio.Future[End]] = {}
        self._now = 0.0
        self._ids = JobIds(lambda: self._now, lambda: self._queued)

    async def start(self) -> "Jobs":
        """Listen to records."""
        await self._bus.subscribe(names.event_of_state(), self._on_record)
        return self

    @property
    def count(self) -> int:
        """Jobs that have ended."""
        return self.ended.total()

    def forget(self) -> None:
        """Begin to count anew."""
        self.ended.clear()
        self.by_worker.clear()

    def made(self, body: bytes = b"", ago_s: float = 0.0) -> tuple[str, str, bytes, Mapping[str, str]]:
        """The next job: its id, subject, data and headers. ago_s: since its id says that it was accepted."""
        self._queued += 1
        now, data = time.time() - ago_s, body or self._body
        self._now = now
        job = Job(
            id=self._ids.new(),
            model=next(self._models),
            version=1,
            signature="serving_default",
            account_id="bench",
            batch_key="all",
            created_at=now,
            deadline_at=now + DEADLINE_S,
            size_bytes=len(data),
        )
        return job.id, names.job(job.model, job.priority, job.account_id, job.id), data, {Header.JOB: header(job)}

    async def put(self, count: int, *, over_s: float = 0.0) -> None:
        """Accept so many, in groups as large as they may be. Raises what a refused one was refused with.

        over_s: their ids, and so their slots, are as if they had come evenly in the time since so long ago.
        """
        ago_s = iter([over_s * (1 - number / count) for number in range(count)])
        await asyncio.gather(self._put(ago_s), self._put(ago_s))  # a group is made while the server stores another

    async def put_one(self, bus: Bus, body: bytes = b"") -> str:
        """Accept one by itself, over a connection that may be another; its id."""
        job_id, subject, data, headers = self.made(body)
        await bus.write(subject, data, headers=headers, expect=0)
        return job_id

    async def run_one(self, body: bytes) -> End:
        """Accept one by itself and wait for its end."""
        return await self.ended_of(await self.begin_one(body))

    async def begin_one(self, body: bytes) -> str:
        """Accept one by itself whose end :meth:`ended_of` tells."""
        job_id, subject, data, headers = self.made(body)
        self._waiting[job_id] = asyncio.get_running_loop().create_future()
        await self._bus.write(subject, data, headers=headers, expect=0)
        return job_id

    async def ended_of(self, job_id: str) -> End:
        """The end of a job, waiting for it."""
        return await self._waiting[job_id]

    async def until(self, count: int, limit_s: float) -> None:
        """Return when so many have ended. Raises :class:`TimeoutError`."""
        async with asyncio.timeout(limit_s):
            while self.count < count:  # noqa: ASYNC110  every end would wake it
                await asyncio.sleep(0.05)

    async def _put(self, ago_s: Iterator[float]) -> None:
        writer = self._bus.grouped(Stream.JOBS)
        while made := [self.made(ago_s=each) for each in itertools.islice(ago_s, GROUP)]:
            writes = [GroupedWrite(subject, data, headers, 0) for _, subject, data, headers in made]
            for outcome in await writer.write_all(writes):
                if not isinstance(outcome, int):
                    raise outcome

    def _on_record(self, message: Message) -> None:
        end = _end(message.headers[Header.RECORD])
        if end.state not in _ENDED:
            return
        self._queued -= 1
        self.ended[end.state] += 1
        self.by_worker[end.worker] += 1
        self.last_at = time.monotonic()
        if (waiting := self._waiting.get(end.id)) is not None and not waiting.done():
            waiting.set_result(end)
