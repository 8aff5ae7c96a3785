"""Jobs of items: what an item asks of a model, under an id that follows from the item, and what came of it."""

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import orjson

from gateway_plugin.admission.submission import SubmitOptions
from gateway_plugin.codec import tfrequest
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.outbound.accountjobs import AccountJobs
from gateway_plugin.queues.items import Item
from gateway_plugin.service.jobs import failure
from gateway_plugin.service.waiting import End
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.program.errors import DeadlineExceeded, ResultTooLarge, SignalboxError, Unavailable
from signalbox.wire import jobids, tensors
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Record, State
from signalbox.wire.queues import Queue
from signalbox.wire.tensors import Tensor

MOST_RUNS: Final = 64
"""Jobs of one item whose ids are told apart; a later one is known by the id of the last of them."""
_TAG: Final = "queue:"
_LONGEST_TAG: Final = 64
_LONGEST_WAIT_S: Final = 600.0
_LONGEST_MESSAGE: Final = 160
"""Characters, so that every sink takes it: the smallest takes 1 KiB."""
_FRAME_PER_BYTE: Final = 16
"""No form of a result has fewer bytes than its frame divided by this: a larger one need not be fetched."""


class ItemResult(NamedTuple):
    """What came of an item. data: for the sink; None = nothing goes there. error: code of what is told there instead of
    a result, empty = the result."""

    data: bytes | None
    error: str = ""


def job_id(stream: str, item: Item, run: int = 0) -> str:
    """The id of an item's job, whenever it is asked for. stream: what tells the item's stream from all others that
    there were. run: from 0 on, one more for each of its jobs that failed and may be tried again."""
    digest = hashlib.sha256(f"{stream} {item.index} {run}".encode()).digest()
    return jobids.new_job_id(item.time, int.from_bytes(digest[:16], "big"))


def refused(error: SignalboxError) -> ItemResult:
    """What goes to the sink instead of a result."""
    return ItemResult(orjson.dumps({"error": error.public_message[:_LONGEST_MESSAGE]}), error.code)


class ItemJobs:
    """Submits items' jobs and reads their results."""

    def __init__(self, jobs: AccountJobs, offloading: Offloading) -> None:
        self._jobs = jobs
        self._offloading = offloading

    def key_of(self, queue: Queue, model: str) -> ApiKey:
        """Whose jobs a queue's items are. Raises as :meth:`AccountJobs.key`."""
        return self._jobs.key(queue.key_id) if queue.key_id else self._jobs.key_of_account(queue.account_id, model)

    def room(self, queue: Queue, model: str, window: int) -> int:
        """How many items of a queue may be with a model at once.

        Raises as :meth:`key_of` and :meth:`AccountJobs.chosen` where none may: an item that were taken would wait here.
        """
        key = self.key_of(queue, model)
        self._jobs.chosen(key, model)
        return self._jobs.most_in_flight(key, model, window)

    async def submit(self, queue: Queue, model: str, item: Item, stream: str) -> str:
        """The id of the item's job, which is there when this returns.

        A second call finds the first one's job. Raises :class:`InvalidRequest` for an item that is no prediction; what
        else is raised says nothing of the item, and may pass.
        """
        name = job_id(stream, item)
        if item.deliveries > 1:  # somebody may have submitted it
            for run in range(min(item.deliveries, MOST_RUNS)):
                name = job_id(stream, item, run)
                found = await self._jobs.find(name)
                if found is None:
                    break
                if not _may_run_again(found.record):
                    return name
        key = self.key_of(queue, model)
        ready, inputs = await self._read(key, model, item.data)
        await self._jobs.require_room(key)
        options = SubmitOptions("lo", LONGEST_DEADLINE_S, (f"{_TAG}{queue.name}"[:_LONGEST_TAG],))
        await self._jobs.submit(key, ready, inputs, options, name, item.trace)
        return name

    async def end_of(self, name: str, max_idle_s: float) -> End:
        """The end of a job. max_idle_s: how long it may run, 0 = as long as its model lets it.

        Raises :class:`DeadlineExceeded` for one that has run for longer, which is cancelled then, and
        :class:`Unavailable` for one that is gone; each with the job's id.
        """
        wait_s = min(max_idle_s or _LONGEST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            end = await self._jobs.end_of(name, wait_s)
            if end is not None:
                return end
            found = await self._jobs.find(name)
            if found is None:
                raise Unavailable("The item's job is not known any more.", job_id=name)
            if not max_idle_s or found.record.state is not State.RUNNING:
                continue
            wait_s = (found.record.claimed_at or 0.0) + max_idle_s - time.time()
            if wait_s <= 0:
                await self._jobs.cancel([name])
                raise DeadlineExceeded("The item was with its model for longer than max_idle.", job_id=name)

    async def result(self, end: End, item: Item, most_bytes: int) -> ItemResult:
        """What goes to the sink. most_bytes: that it takes.

        Raises the error of a job that failed and may be tried again, with the job's id, and :class:`Unavailable`
        without it where the result cannot be read now.
        """
        try:
            frame = await self._jobs.frame_of(end, _FRAME_PER_BYTE * most_bytes)
            data = None if frame is None else await self._written(end.record, frame, item)
        except SignalboxError as error:
            if error.is_retryable:
                raise
            return refused(error)
        if frame is None or (data is not None and len(data) > most_bytes):
            return refused(_too_large(end.record.id, most_bytes))
        return ItemResult(data)

    async def cancel(self, job_names: Sequence[str]) -> None:
        """Cancel what has not ended: best effort."""
        await self._jobs.cancel(list(job_names))

    async def _read(self, key: ApiKey, model: str, body: bytes) -> tuple[PreparedVersion, DecodedInputs]:
        if not tfrequest.is_one(body):
            return await self._jobs.read(key, body, model)
        ready = self._jobs.chosen(key, model)
        reading = partial(tfrequest.decoded, tfrequest.read(body), ready)
        return ready, await self._offloading.read(key.account_id, len(body), reading)

    async def _written(self, record: Record, frame: bytes, item: Item) -> bytes | None:
        """A result in the form of its item; None for one that has nothing in it."""
        outputs = tensors.decode(frame)
        if _is_empty(outputs):
            return None
        if tfrequest.is_one(item.data):
            return await self._offloading.write(record.account_id, len(frame), partial(tfrequest.written, outputs))
        return await self._jobs.codec.render(record.account_id, frame, record.style)


def _is_empty(outputs: Sequence[Tensor]) -> bool:
    """Whether a result has nothing in it: no elements, or empty strings alone. It went elsewhere."""
    return not any(tensor.data.strip(b"\0") if tensor.dtype == "string" else tensor.data for tensor in outputs)


def _may_run_again(record: Record) -> bool:
    """Whether a job has ended so that its item was given out once more, for another job."""
    if not record.state.is_terminal or record.state is State.SUCCEEDED:
        return False
    return record.state is State.CANCELLED or failure(record).is_retryable


def _too_large(name: str, most_bytes: int) -> SignalboxError:
    return ResultTooLarge(
        f"The result is larger than the sink takes, {most_bytes} bytes. While it is kept, read it with GET "
        f"/v1/jobs/{name}/result, or have the sink take more (queue.sink.max_payload_size_kb).",
        job_id=name,
    )
