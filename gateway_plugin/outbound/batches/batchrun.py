"""One batch from where it stands to its end, or until it is cancelled: everything it needs to go on is stored."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final

from msgspec.structs import replace

from gateway_plugin.outbound.batches import lines
from gateway_plugin.outbound.batches.linejobs import LineJobs, refused
from gateway_plugin.outbound.batches.lines import Line
from gateway_plugin.outbound.batches.output import Output
from gateway_plugin.service.batches import OPEN, Endpoint, endpoint_of, write
from gateway_plugin.service.files import Files
from signalbox.bus.client import Bus
from signalbox.program import log, metrics
from signalbox.program.errors import (
    Forbidden,
    LimitExceeded,
    NotFound,
    SignalboxError,
    StaleRevision,
    Unauthorized,
    Unavailable,
)
from signalbox.program.tasks import TaskGroup
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import State, decode
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Batch, StoredFile

SPAN: Final = 4096
"""No line is begun that is so far behind the first one that is not done: what is remembered of a batch is bounded."""
_AT_ONCE: Final = 8
"""Lines that are read and submitted at once: so many are in memory."""
_FLUSH_S: Final = 1.0
"""A line waits so long for others before it is in a file."""
_GRACE_S: Final = 30.0
"""For jobs of a batch that has been stopped, to end."""
_RETRY_S: Final = 1.0
_RACES: Final = 20

ENDED = metrics.counter("batches_ended", "Batches of files that have ended, by how.", "state")


class BatchRun:
    """Does a batch. window: most jobs of it that are open. kept_s: how long it is kept."""

    def __init__(
        self, bus: Bus, files: Files, jobs: LineJobs, batch: Batch, revision: int, *, window: int, kept_s: float
    ) -> None:
        self._bus = bus
        self._files = files
        self._jobs = jobs
        self._batch = batch
        self._revision = revision
        self._window = window
        self._kept_s = kept_s
        self._output = Output(files, batch)
        self._open: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitting = 0
        self._room = window
        self._begun_to = 0
        self._moved = asyncio.Event()
        self._failure: SignalboxError | None = None

    def notice(self, batch: Batch) -> None:
        """The batch has changed: something may be asked of it."""
        if self._batch.asked not in {batch.asked, "cancel"}:
            self._batch = replace(self._batch, asked=batch.asked, asked_at=batch.asked_at)
            self._moved.set()

    async def run(self) -> None:
        """To its end, or until it is paused. Raises what keeps it from going on now: a later run goes on from what is
        stored.
        """
        await self._output.restore()
        self._check_share()
        try:
            endpoint = endpoint_of(self._batch.endpoint)
            found = await self._files.find(self._batch.account_id, self._batch.input_file)
            await self._begin(found)
            await self._do(found, endpoint)
            await self._output.flush()
            if not (self._is_stopped or self._is_done):  # it was paused, whatever is asked of it by now
                await self._update(**self._progress())
                return  # it is taken up again when it is to go on
        except (NotFound, Unauthorized, Forbidden) as error:
            self._failure = error
        await self._end()

    async def _begin(self, found: StoredFile) -> None:
        if self._batch.state != "validating" and self._batch.total:
            return
        total = 0
        async for _ in lines.read(self._files, self._batch.account_id, found):
            total += 1
        if not total:
            raise NotFound("The input file has no lines.")
        await self._update(state="in_progress", total=total, started_at=time.time())

    async def _do(self, found: StoredFile, endpoint: Endpoint) -> None:
        """Begin line after line, as far as may be at once, until all are done or the batch is to stop."""
        self._measure(endpoint)
        # What is behind no earlier run has begun: it counted from no more than a span further than what is stored.
        new_from = self._output.done.done_to + 2 * SPAN
        try:
            async with TaskGroup() as group, aclosing(self._left(found)) as left:
                flushing = group.create_task(self._keep_up(endpoint))
                async for line in left:
                    if not await self._may_begin(line):
                        break
                    self._submitting += 1
                    task = group.create_task(self._one(line, endpoint, is_new=line.number >= new_from))
                    self._tasks.add(task)
                    task.add_done_callback(self._ended)
                while self._tasks and not self._is_stopped:
                    await self._wait()
                if self._is_stopped:
                    await self._stop()
                flushing.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._moved.set()

    async def _stop(self) -> None:
        """Cancel the jobs that are open, give them time to end, and give up what has not ended then."""
        if not self._tasks:
            return
        await self._jobs.cancel(list(self._open))
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while self._tasks:
                    self._moved.clear()
                    await self._moved.wait()
        for task in list(self._tasks):
            task.cancel()

    async def _left(self, found: StoredFile) -> AsyncGenerator[Line, None]:
        """The lines that are not done."""
        async with aclosing(lines.read(self._files, self._batch.account_id, found)) as all_lines:
            async for line in all_lines:
                if line.number not in self._output.done:
                    yield line

    @property
    def _is_stopped(self) -> bool:
        """Whether no more lines are begun: it is cancelled, its time is over, or it cannot go on."""
        return self._batch.asked == "cancel" or time.time() >= self._batch.deadline_at or self._failure is not None

    @property
    def _is_done(self) -> bool:
        """Whether each line is in a file."""
        return 0 < self._batch.total <= self._output.done.done_to

    async def _may_begin(self, line: Line) -> bool:
        """Return when a line may be begun, True, or when none may any more."""
        while not self._is_stopped and self._batch.asked == "run":
            is_room = len(self._tasks) < self._room and self._submitting < _AT_ONCE
            if is_room and line.number < self._output.done.done_to + SPAN:
                self._begun_to = line.number + 1
                return True
            await self._wait()
        return False

    async def _wait(self, longest_s: float = math.inf) -> None:
        """Until something moves, or the batch's time is over, but no longer. longest_s: seconds."""
        self._moved.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(longest_s, self._batch.deadline_at - time.time()))):
                await self._moved.wait()

    async def _one(self, line: Line, endpoint: Endpoint, *, is_new: bool) -> None:
        """One line: its job submitted, what came of it in a file."""
        job_id = lines.job_id(self._batch, line.number)
        self._open.add(job_id)
        try:
            try:
                custom_id = await self._submitted(line, endpoint, job_id, is_new=is_new)
            finally:
                self._submitting -= 1
                self._moved.set()
            number = line.number
            del line  # its text is not kept while it waits
            if custom_id is not None:
                await self._follow(number, job_id, custom_id)
        finally:
            self._open.discard(job_id)

    async def _submitted(self, line: Line, endpoint: Endpoint, job_id: str, *, is_new: bool) -> str | None:
        """The line's ``custom_id`` once its job is there; None where there is none, and the files say why."""
        custom_id: str | None = None
        try:
            asked = lines.asked(line, self._batch.endpoint)
            custom_id = asked.custom_id
            if not is_new and await self._jobs.is_there(job_id):
                return custom_id
            while not self._is_stopped:
                try:
                    await self._jobs.submit(self._batch, endpoint, job_id, asked)
                except SignalboxError as error:
                    if not error.is_retryable:
                        raise
                    await self._wait(error.retry_after_s or _RETRY_S)
                else:
                    return custom_id
        except (Unauthorized, Forbidden) as error:
            self._failure = error
        except SignalboxError as error:
            if error.is_retryable:
                raise
            custom_id = custom_id or lines.custom_id(line)
            await self._output.add(line.number, refused(job_id, custom_id, error), is_error=True)
        return None

    async def _follow(self, number: int, job_id: str, custom_id: str) -> None:
        """Write what came of a job, unless it was ended because the batch is stopped."""
        if self._is_stopped:  # since it was submitted: who stopped the batch may not have found it
            await self._jobs.cancel([job_id])
        end = await self._jobs.end_of(job_id, max(0.0, self._batch.deadline_at - time.time()) + _GRACE_S)
        if end is None or (self._is_stopped and end.record.state in {State.CANCELLED, State.EXPIRED}):
            return
        text, is_error = await self._jobs.line_of(custom_id, end)
        await self._output.add(number, text, is_error=is_error)

    # ------------------------------------------------------------------ what is known of it

    def _measure(self, endpoint: Endpoint) -> None:
        """How many lines may be open now."""
        self._room = self._jobs.most_in_flight(self._jobs.key_of(self._batch), endpoint, self._window)

    async def _keep_up(self, endpoint: Endpoint) -> None:
        """Once a second: what is in the files and in the batch's document is never far behind what is done."""
        while True:
            await asyncio.sleep(_FLUSH_S)
            try:
                self._measure(endpoint)
            except (Unauthorized, Forbidden) as error:
                self._failure = error
                self._moved.set()
            except Unavailable:
                pass  # keys are not known for sure now, and what submits waits until they are
            before = self._output.done.done_to
            await self._output.flush()
            done = self._output.done
            if (done.completed, done.failed) != (self._batch.completed, self._batch.failed):
                await self._update(**self._progress())
            self._check_share()
            if done.done_to != before:
                self._moved.set()

    def _check_share(self) -> None:
        """Begin no more lines once the account's files take more than they may; those that run still come in."""
        if self._output.is_over and self._failure is None:
            self._failure = LimitExceeded(
                f"Files of your account take more than the {self._files.most_bytes} bytes that they may. Delete some, "
                "and make a batch of the lines that are in neither of this one's files."
            )
            self._moved.set()

    def _progress(self) -> dict[str, Any]:
        output = self._output
        return {
            "state": "cancelling" if self._batch.asked == "cancel" else "in_progress",
            "completed": output.done.completed,
            "failed": output.done.failed,
            "line": max(self._batch.line, self._begun_to),
            "output_file": output.output_file,
            "error_file": output.error_file,
            "output_chunks": output.output_chunks,
            "error_chunks": output.error_chunks,
        }

    async def _end(self) -> None:
        await self._output.finish()
        failure = self._failure.public_message if self._failure is not None else ""
        stopped = "failed" if failure else "cancelled" if self._batch.asked == "cancel" else "expired"
        state = "completed" if self._is_done else stopped
        await self._update(**{**self._progress(), "state": state, "error": failure, "ended_at": time.time()})
        ENDED.labels(state).inc()
        log.info("batch.ended", batch=self._batch.id, state=state, completed=self._batch.completed)

    async def _update(self, **changes: Any) -> None:
        """Change the batch, with what was asked of it meanwhile. Raises as :meth:`Bus.write`, and
        :class:`StaleRevision` where another does it."""
        for _ in range(_RACES):
            wanted = replace(self._batch, **changes)
            try:
                self._revision = await write(self._bus, wanted, expect=self._revision, kept_s=self._kept_s)
            except StaleRevision:
                await self._reread()
                continue
            self._batch = wanted
            return
        raise Unavailable("The batch changes too quickly.", retry_after_s=1.0)

    async def _reread(self) -> None:
        subject = names.key(Bucket.BATCHES, outboundnames.batch_key(self._batch.account_id, self._batch.id))
        stored = await self._bus.leader_get(Bucket.BATCHES.stream, subject)
        if stored is None or not stored.data:
            raise StaleRevision(reason="the batch is gone")
        found = decode(Batch, stored.data)
        if found.state not in OPEN:
            raise StaleRevision(reason="another has ended the batch")
        self._revision = stored.seq
        self._batch = replace(self._batch, asked=found.asked, asked_at=found.asked_at)
        self._moved.set()
