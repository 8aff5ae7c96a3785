"""Takes the items of one queue to one of its services: an item's job, its end in the sink, then the commit.

A crash between any two of these steps repeats the later ones: the job's id follows from the item, and so does the id of
the sink's item, which is looked for where the item was given out before. So nothing is lost, and no result is there
twice, unless a consumer took the first one out of the sink before the second was written.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from gateway_plugin.outbound.forwarding import gauges
from gateway_plugin.outbound.forwarding.itemjobs import ItemJobs, ItemResult, refused
from gateway_plugin.outbound.forwarding.sink import SINK, Sink
from gateway_plugin.queues.items import Consumer, Item
from gateway_plugin.queues.made import Made
from gateway_plugin.queues.store import Store
from signalbox.bus.client import Bus
from signalbox.jobs import joblog
from signalbox.program import log
from signalbox.program.errors import Ambiguous, Bug, Conflict, InvalidRequest, QueueFull, SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.wire.queues import DEFAULT_GROUP, Queue

_LONGEST_UID: Final = 64
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
"""Between two tries of what NATS tells no end of, such as a sink without room."""
_LONGEST_CODE: Final = 20
_LEAVES: Final = "Shutdown"
T = TypeVar("T")


class Opened(Protocol):
    """A watch of a source (:class:`gateway_plugin.queues.watching.openwatch.OpenWatch`)."""

    async def next(self) -> Item | None:
        """The next item; None where the stream has ended, and all of it is committed."""

    async def close(self, *, code: str = "", reason: str = "") -> None:
        """Give back what is not committed."""

    def resize(self, window: int) -> None:
        """Hold so many items at most from now on."""


class Watching(Protocol):
    """What a forwarder does with the sources of queues."""

    async def open(self, queue: Queue, consumer: Consumer, window: int) -> Opened:
        """A watch. It calls no item dead, and takes none back."""

    async def commit(self, queue: Queue, index: int) -> None:
        """Commit an item for the services' group. Raises :class:`Conflict` where it was not given to that."""

    async def give_back(self, queue: Queue, consumer: Consumer, index: int, code: str, reason: str) -> None:
        """Have an item given out again. Raises :class:`Conflict` where this consumer does not hold it."""

    async def bury(self, queue: Queue, item: Item, code: str, reason: str) -> None:
        """Store a dead item in the rear queue. Raises :class:`QueueFull`."""


class Parts(NamedTuple):
    """What all forwarders of a program share. bus: to the account of the queue service. find: a queue's newest
    document. services: how many forwarders run jobs of an account on a model. window: most items that a forwarder has
    in flight."""

    bus: Bus
    store: Store
    made: Made
    watching: Watching
    jobs: ItemJobs
    find: Callable[[str], Queue | None]
    services: Callable[[str, str], int]
    window: int


def uid_of(model: str) -> str:
    """The id of a service as a consumer."""
    uid = f"service-{model}"
    if len(uid) <= _LONGEST_UID:
        return uid
    return f"{uid[: _LONGEST_UID - 9]}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


class Forwarder:
    """One service of one queue. stream: what tells the source's stream from any other, see :func:`job_id`."""

    def __init__(self, parts: Parts, queue: Queue, model: str, stream: str) -> None:
        self._parts = parts
        self._first = queue
        self._model = model
        self._stream = stream
        self._sink = Sink(parts.bus, parts.store, parts.made, stream)
        self._consumer = Consumer(DEFAULT_GROUP, uid_of(model))
        self._tasks: set[asyncio.Task[None]] = set()
        self._job_ids: dict[int, str] = {}
        """Of the items in flight whose jobs are there, by their numbers."""
        self._blocked = 0
        self._moved = asyncio.Event()
        self._stopped = ""

    async def run(self) -> None:
        """Until cancelled, or the source's stream has ended and all of it is done.

        Raises what opening a watch and asking it raises: another has the service's watch, or the queue is gone.
        """
        try:
            watch = await self._parts.watching.open(self._queue, self._consumer, await self._room())
            try:
                async with TaskGroup() as group:
                    while (item := await watch.next()) is not None:
                        task = group.create_task(self._one(item))
                        self._tasks.add(task)
                        task.add_done_callback(self._ended)
                        watch.resize(await self._room())
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
            finally:
                await watch.close(code=_LEAVES)
        finally:
            self._going_on()

    @property
    def _queue(self) -> Queue:
        return self._known() or self._first

    def _known(self) -> Queue | None:
        """The queue as it is now; None where it is gone, though another may have its name."""
        found = self._parts.find(self._first.name)
        return found if found is not None and found.created_at == self._first.created_at else None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._moved.set()

    async def _room(self) -> int:
        """How many items may be in flight, once there is room for one more."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                room = self._most()
            except SignalboxError as error:  # an item that were taken now would wait here, and for no other service
                self._stop(error.code, error)
                pause_s = await _pause(pause_s, error)
                continue
            if not self._blocked:
                self._going_on()
                if len(self._tasks) < room:
                    return room
            self._moved.clear()
            await self._moved.wait()

    def _most(self) -> int:
        queue, parts = self._queue, self._parts
        room = parts.jobs.room(queue, self._model, parts.window)
        return max(1, room // max(1, parts.services(queue.account_id, self._model)))

    # ------------------------------------------------------------------------------ one item

    async def _one(self, item: Item) -> None:
        """An item, from its job to its commit."""
        try:
            if item.deliveries > 1 and await self._until_done(item, lambda: self._sink.has(self._queue, item)):
                await self._commit(item, "again")
            else:
                await self._do(item)
        except Exception as error:  # noqa: BLE001  the edge of a task: the other items go on
            log.exception("forwarding.item_failed", **self._about(item), index=item.index)
            await self._fail(item, Bug(str(error)))
        finally:
            self._job_ids.pop(item.index, None)

    async def _do(self, item: Item) -> None:
        jobs = self._parts.jobs
        try:
            name = await self._until_done(item, lambda: jobs.submit(self._queue, self._model, item, self._stream))
        except InvalidRequest as error:
            await self._deliver(item, refused(error))
            return
        self._job_ids[item.index] = name
        try:
            result = await self._result(name, item)
        except asyncio.CancelledError:
            if self._known() is None:  # nobody will want the result
                await asyncio.shield(jobs.cancel([name]))
            raise
        except SignalboxError as error:
            await self._fail(item, error)
        else:
            await self._deliver(item, result)

    async def _result(self, name: str, item: Item) -> ItemResult:
        """What came of an item's job. Raises the error of a job that may be tried again."""
        jobs = self._parts.jobs
        end = await self._until_done(item, lambda: jobs.end_of(name, self._queue.max_idle_s))
        return await self._until_done(item, lambda: jobs.result(end, item, self._queue.room(SINK).item_bytes))

    async def _deliver(self, item: Item, result: ItemResult) -> None:
        """The end in the sink, then the commit."""
        await self._put(item, result)
        await self._commit(item, "error" if result.error else "empty" if result.data is None else "result")

    async def _put(self, item: Item, result: ItemResult) -> None:
        """Put a result into the sink. While that takes none, no more items are taken from the source."""
        pause_s, is_unsure, is_blocked, is_bare = _FIRST_PAUSE_S, False, False, False
        try:
            while not (is_unsure and await self._until_done(item, lambda: self._sink.has(self._queue, item))):
                try:
                    await self._sink.put(self._queue, item, result, is_bare=is_bare)
                except InvalidRequest as error:  # the sink takes less by now, or no such tags with what is added
                    log.warning("forwarding.result_refused", **self._about(item), reason=error.public_message)
                    if is_bare:
                        return
                    result, is_bare = refused(error), True
                except SignalboxError as error:
                    is_unsure = is_unsure or isinstance(error, Ambiguous)
                    self._blocked += not is_blocked
                    is_blocked = True
                    self._stop("sink_full" if isinstance(error, QueueFull) else f"sink_{error.code}", error)
                    pause_s = await _pause(pause_s, error)
                else:
                    return
        finally:
            self._blocked -= is_blocked
            self._moved.set()

    async def _fail(self, item: Item, error: SignalboxError) -> None:
        """Have an item given out again whose job failed and may be tried again; one that was often enough is dead."""
        queue, watching, code = self._queue, self._parts.watching, _code(error)
        if not queue.max_delivery or item.deliveries < queue.max_delivery:
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(item.deliveries, 10)))
            give_back = watching.give_back
            with suppress(Conflict):  # it is not held here any more, so that it comes again by itself
                await self._until_done(
                    item, lambda: give_back(queue, self._consumer, item.index, code, error.public_message)
                )
            gauges.FORWARDED.labels(self._model, "given_back").inc()
            return
        log.warning("forwarding.item_dead", **self._about(item), index=item.index, code=code)
        if queue.dead_message_policy == "Rear":
            await self._until_done(item, lambda: watching.bury(queue, item, code, error.public_message))
        await self._commit(item, "dead")

    async def _commit(self, item: Item, outcome: str) -> None:
        gauges.FORWARDED.labels(self._model, outcome).inc()
        with suppress(Conflict):  # it was given out anew, and is seen to be done there
            await self._until_done(item, lambda: self._parts.watching.commit(self._queue, item.index))

    # ------------------------------------------------------------------------------ what does not go now

    async def _until_done(self, item: Item, call: Callable[[], Awaitable[T]]) -> T:
        """What a call returns or raises of its item or its job; made again for as long as it fails otherwise."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await call()
            except (InvalidRequest, Conflict, Bug):
                raise
            except SignalboxError as error:
                if "job_id" in error.facts and not isinstance(error, Ambiguous):
                    raise
                log.info("forwarding.waits", **self._about(item), reason=error.public_message)
                pause_s = await _pause(pause_s, error)

    def _about(self, item: Item) -> dict[str, Any]:
        """What a line about an item has: its service, its job where that is there, and the trace of its put."""
        job = joblog.only_id(self._job_ids.get(item.index, ""), item.trace)
        return {"queue": self._first.name, "model": self._model, **job}

    def _stop(self, reason: str, error: SignalboxError) -> None:
        if self._stopped != reason:
            self._going_on()
            self._stopped = reason
            gauges.STOPPED.labels(reason).inc()
            why = error.public_message
            log.warning("forwarding.stopped", queue=self._first.name, model=self._model, reason=reason, why=why)

    def _going_on(self) -> None:
        if self._stopped:
            gauges.STOPPED.labels(self._stopped).dec()
            log.info("forwarding.goes_on", queue=self._first.name, model=self._model, reason=self._stopped)
            self._stopped = ""


async def _pause(pause_s: float, error: SignalboxError) -> float:
    """Wait as an error says, and at least so long; returns how long to wait the next time."""
    await asyncio.sleep(max(pause_s, min(error.retry_after_s or 0.0, _LONGEST_PAUSE_S)))
    return min(_LONGEST_PAUSE_S, 2 * pause_s)


def _code(error: SignalboxError) -> str:
    """An error's code in the form in which consumers say why they give an item back."""
    return "".join(part.capitalize() for part in error.code.split("_"))[:_LONGEST_CODE]
