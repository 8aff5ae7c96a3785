"""Group commit: writes that wait for the same stream share one atomic batch, and so its disk syncs.

With ``sync_interval: always`` a batch costs about as much as five single writes whatever its size, so below ten waiting
writes they go singly (a lone request never waits for others) and from ten on as one batch. A batch is all or nothing:
one the server refuses is repeated as single writes, so that each caller gets its own answer.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from signalbox.bus.jetstream import decode_puback, header_fields, unanswered
from signalbox.bus.requests import Requests
from signalbox.program.errors import Ambiguous, SignalboxError, Unavailable
from signalbox.wire.names import Header, Stream

BATCH_FROM: Final = 10
"""Waiting writes from which a batch is cheaper."""
SINGLES_LIMIT: Final = 9
"""Single writes in flight at once; what comes on top waits, and so a batch forms."""
_BATCH_LIMIT: Final = 500
_BATCH_LIMIT_BYTES: Final = 4 * 1024 * 1024
_BATCH_HEADER_BYTES: Final = 128
_GO_ALONE: Final = -1
"""Stands for a sequence: write this message singly."""


class GroupedWrite(NamedTuple):
    """One message of :meth:`GroupWriter.write_all`; the fields mean what they mean to :meth:`Bus.write`."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    expect: int | None


WITHDRAWN: Final = -2
"""Stands for a sequence: :meth:`Group.withdraw` took the write back before it was sent."""


class _Waiting:
    __slots__ = ("answer", "data", "fields", "is_taken", "subject")

    def __init__(self, subject: str, fields: bytes, data: bytes, answer: asyncio.Future[int]) -> None:
        self.subject = subject
        self.fields = fields
        self.data = data
        self.answer = answer
        self.is_taken = False


class Group:
    """A handle on the writes of one :meth:`GroupWriter.write_all`."""

    def __init__(self) -> None:
        self._waiting: Sequence[_Waiting] = ()

    def withdraw(self) -> bool:
        """Take all of them back if none has been sent yet; then each outcome is :data:`WITHDRAWN`."""
        waiting = self._waiting
        if not waiting or any(each.is_taken or each.answer.done() for each in waiting):
            return False
        for each in waiting:
            each.answer.set_result(WITHDRAWN)
        return True

    def hold(self, waiting: Sequence[_Waiting]) -> None:
        """The writes this stands for; the writer calls it."""
        self._waiting = waiting


class GroupWriter:
    """Writes to one stream; get it from :meth:`Bus.grouped`, one per stream and connection.

    batches, refused: batches committed, batches repeated as singles.
    """

    def __init__(self, bus: Requests, stream: Stream) -> None:
        self.stream = stream
        self.batches = 0
        self.refused = 0
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Waiting] = deque()
        self._singles = 0
        self._batch: asyncio.Task[None] | None = None
        self._count = 0

    async def write(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        expect: int | None = None,
        ttl_s: int | None = None,
        msg_id: str | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Write one message; same arguments, same promise and same errors as :meth:`Bus.write`."""
        fields = header_fields(headers, expect, ttl_s, msg_id)
        if self._is_too_large(fields, data):
            return await self._bus.write_raw(subject, fields, data, timeout_s)
        if self._queue or self._batch is not None or self._singles >= SINGLES_LIMIT:
            waiting = _Waiting(subject, fields, data, self._loop.create_future())
            self._queue.append(waiting)
            self._advance()
            verdict = await self._verdict(waiting)
            if verdict != _GO_ALONE:
                return verdict
        else:
            self._singles += 1
        try:
            return await self._bus.write_raw(subject, fields, data, timeout_s)
        finally:
            self._release()

    async def write_all(self, writes: Sequence[GroupedWrite], group: Group | None = None) -> list[int | SignalboxError]:
        """Many writes handed in at once, each with its own outcome: a sequence, or the error of that write.

        From :data:`BATCH_FROM` on they go as one batch without a task or a task switch for each. ``group`` can take
        them back while they wait.
        """
        waiting = [
            _Waiting(w.subject, header_fields(w.headers, w.expect), w.data, self._loop.create_future()) for w in writes
        ]
        if group is not None:
            group.hold(waiting)
        for each in waiting:
            if self._is_too_large(each.fields, each.data):
                self._let_go(each)  # refused by name rather than with the whole batch
            else:
                self._queue.append(each)
        self._advance()
        outcomes: list[int | SignalboxError] = []
        alone: dict[int, asyncio.Task[int]] = {}
        try:
            for place, each in enumerate(waiting):
                try:
                    verdict: int | SignalboxError = await each.answer
                except SignalboxError as error:
                    verdict = error
                if verdict == _GO_ALONE:
                    alone[place] = self._start_alone(each)
                outcomes.append(verdict)
            for place, task in alone.items():
                try:
                    outcomes[place] = await task
                except SignalboxError as error:
                    outcomes[place] = error
        except asyncio.CancelledError:
            self._let_all_go(waiting, alone)
            raise
        return outcomes

    def _start_alone(self, waiting: _Waiting) -> asyncio.Task[int]:
        task = asyncio.create_task(
            self._bus.write_raw(waiting.subject, waiting.fields, waiting.data), name="single write"
        )
        task.add_done_callback(lambda _: self._release())  # also when cancelled before it began
        return task

    def _let_all_go(self, waiting: Sequence[_Waiting], alone: Mapping[int, asyncio.Task[int]]) -> None:
        """Release all slots of a group whose caller was cancelled."""
        for place, each in enumerate(waiting):
            if place in alone:
                alone[place].cancel()  # which gives its slot back
            elif not each.answer.done():
                each.answer.cancel()
            elif _was_let_go(each.answer):
                self._release()

    async def close(self) -> None:
        """Wait for the batch in flight. Idempotent."""
        while self._batch is not None:
            await asyncio.wait([self._batch])

    def _is_too_large(self, fields: bytes, data: bytes) -> bool:
        size = len(fields) + len(data) + _BATCH_HEADER_BYTES
        return size > self._bus.connection.max_body_bytes

    async def _verdict(self, waiting: _Waiting) -> int:
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if _was_let_go(waiting.answer):
                self._release()
            raise

    def _release(self) -> None:
        self._singles -= 1
        self._advance()

    def _advance(self) -> None:
        """Start what may start now."""
        if self._batch is not None:
            return
        if len(self._queue) >= BATCH_FROM:
            group = self._take_group()
            if len(group) >= BATCH_FROM:
                self._batch = asyncio.create_task(self._commit(group), name="batch write")
                return
            for waiting in group:
                waiting.is_taken = False
            self._queue.extendleft(reversed(group))
        while self._queue and self._singles < SINGLES_LIMIT:
            self._let_go(self._queue.popleft())

    def _let_go(self, waiting: _Waiting) -> None:
        if not waiting.answer.done():
            self._singles += 1
            waiting.answer.set_result(_GO_ALONE)

    def _take_group(self) -> list[_Waiting]:
        """The next batch, in order, each subject once: the server checks the expectations of one batch together."""
        group: list[_Waiting] = []
        kept: list[_Waiting] = []
        subjects: set[str] = set()
        size = 0
        while self._queue and len(group) < _BATCH_LIMIT and size < _BATCH_LIMIT_BYTES:
            waiting = self._queue.popleft()
            if waiting.answer.done():
                continue
            if waiting.subject in subjects:
                kept.append(waiting)
            else:
                subjects.add(waiting.subject)
                waiting.is_taken = True
                group.append(waiting)
                size += len(waiting.data) + len(waiting.fields)
        self._queue.extendleft(reversed(kept))
        return group

    async def _commit(self, group: list[_Waiting]) -> None:
        try:
            first = await self._send(group)
        except SignalboxError as error:
            _fail(group, error)
        except BaseException:
            _fail(group, Ambiguous(reason="the batch was cut short"))
            raise
        else:
            if first is None:
                self.refused += 1
                for waiting in group:
                    self._let_go(waiting)
            else:
                self.batches += 1
                for seq, waiting in enumerate(group, first):
                    if not waiting.answer.done():
                        waiting.answer.set_result(seq)
        finally:
            self._batch = None
            self._advance()

    async def _send(self, group: list[_Waiting]) -> int | None:
        """Sequence of the first message once all are stored; None if the server refused the batch."""
        bus = self._bus
        if not bus.is_connected:
            raise Unavailable("NATS cannot be reached; nothing was sent.", retry_after_s=1.0)
        self._count += 1
        tag = f"{Header.BATCH_ID}: {bus.instance}-{self.stream}-{self._count}\r\n{Header.BATCH_SEQUENCE}: "
        head = tag.encode()
        *others, last = group
        for number, waiting in enumerate(others, 1):
            bus.send(waiting.subject, b"", b"%b%b%d\r\n" % (waiting.fields, head, number), waiting.data)
        commit = b"%b%b%d\r\nNats-Batch-Commit: 1\r\n" % (last.fields, head, len(group))
        _, body = await bus.request(last.subject, last.data, fields=commit, is_write=True)
        ack = decode_puback(body)
        if ack.error is not None:
            return None
        if ack.count != len(group):
            raise unanswered(last.subject, f"{ack.count} of {len(group)} counted", is_write=True)
        return ack.seq - len(group) + 1


def _was_let_go(answer: asyncio.Future[int]) -> bool:
    is_result = answer.done() and not answer.cancelled() and answer.exception() is None
    return is_result and answer.result() == _GO_ALONE


def _fail(group: list[_Waiting], error: SignalboxError) -> None:
    """Give every caller its own exception: one shared would collect all their tracebacks."""
    for waiting in group:
        if not waiting.answer.done():
            again = type(error)(error.public_message, retry_after_s=error.retry_after_s, **error.facts)
            waiting.answer.set_exception(again)
