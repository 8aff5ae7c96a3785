"""Removes acknowledged jobs from ``JOBS``, many with one disk sync, and their stored inputs from ``INPUTS``.

A work-queue stream removes each message as it is acknowledged and syncs each removal, which cost more
syncs than the three writes that a job needs. ``JOBS`` keeps acknowledged messages; now and then the sweep asks each
queue up to which sequence all are acknowledged, and purges up to there. See ADR 0083. A job is acknowledged when it
has ended, so its input is removed by the same sweep; :mod:`workers.recovery.inputs` removes what no sweep has
removed (ADR 0191).
"""

import asyncio
from collections import deque
from typing import Final

from signalbox.bus.client import Bus, Delivery
from signalbox.jobs import inputs
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError
from signalbox.wire import names
from signalbox.wire.messages import Job
from signalbox.wire.names import Priority, Stream

PERIOD_S: Final = 1.0
"""From the first acknowledgement to the sweep that removes it and all others until then."""
LONGEST_PERIOD_S: Final = 30.0
"""The same where an old job, still in flight, keeps the younger ones from being swept."""
KEPT: Final = 50_000
"""Acknowledged jobs that may lie behind such an old one; more are removed one by one."""

GONE: Final = frozenset({10043, 10057})
"""The server's codes for deleting what is not there: within the stream, and before its first message."""

Queue = tuple[str, Priority]


async def purge_acknowledged(bus: Bus, model: str, priority: Priority) -> int:
    """Remove everything up to where all is acknowledged; returns that sequence. Idempotent.

    Raises :class:`NotFound` where the model's queues are gone.
    """
    info = await bus.consumer_info(names.consumer(model, priority))
    floor = info.ack_floor_stream_seq
    if floor:
        await bus.request_json(
            f"$JS.API.STREAM.PURGE.{Stream.JOBS}", {"filter": names.jobs_of(model, priority), "seq": floor + 1}
        )
    return floor


async def remove(bus: Bus, seq: int) -> None:
    """Remove one message of ``JOBS`` whose job has ended. Idempotent."""
    try:
        await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{Stream.JOBS}", {"seq": seq, "no_erase": True})
    except SignalboxError as error:
        if error.facts.get("err_code") not in GONE:
            raise


class Sweep:
    """The sweep of one worker. No task runs while no job has been acknowledged."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._acknowledged: dict[Queue, deque[int]] = {}
        self._last: dict[Queue, Delivery] = {}
        self._inputs: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._period_s = PERIOD_S
        self._is_closing = False

    def note(self, job: Job, delivery: Delivery) -> None:
        """Note that ``delivery`` has been acknowledged."""
        queue = (job.model, job.priority)
        noted = self._acknowledged.get(queue)
        if noted is None:
            noted = self._acknowledged[queue] = deque()
        noted.append(delivery.seq)
        self._last[queue] = delivery
        if inputs.is_stored(job):
            self._inputs[inputs.subject_of(job)] = None
        self._arm()

    async def close(self, within_s: float) -> None:
        """Sweep what is left; what cannot be swept in time, the next worker that sweeps removes."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with asyncio.timeout(within_s):
                if self._task is not None:
                    await self._task
                await self._let_server_count()
                await self._sweep()
        except TimeoutError:
            log.warning("sweep.closed_early", jobs=sum(map(len, self._acknowledged.values())))

    async def _let_server_count(self) -> None:
        """Wait until the server has counted all acknowledgements: it counts in order, and the last one has a reply."""
        for queue in self._acknowledged:
            try:
                await self._last[queue].ack()
            except SignalboxError as error:
                log.warning("sweep.ack_check_failed", model=queue[0], why=str(error))

    def _start(self) -> None:
        self._task = self._loop.create_task(self._sweep_and_rearm(), name="sweep")

    async def _sweep_and_rearm(self) -> None:
        try:
            is_done = await self._sweep()
        except Exception:  # noqa: BLE001  the edge of a task: what is left is swept the next time
            log.exception("sweep.turn_failed")
            is_done = False
        self._period_s = PERIOD_S if is_done else min(self._period_s * 2, LONGEST_PERIOD_S)
        self._timer = None
        if not is_done:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and not self._is_closing:
            self._timer = self._loop.call_later(self._period_s, self._start)

    async def _sweep(self) -> bool:
        """Sweep each queue; returns whether no acknowledged job is left in the stream, as far as this worker knows."""
        for queue in list(self._acknowledged):
            try:
                await self._sweep_queue(queue)
            except NotFound:
                self._forget(queue)  # the model and its queues have been removed
            except SignalboxError as error:
                log.warning("sweep.failed", model=queue[0], why=str(error))
        await self._remove_inputs()
        return not self._acknowledged and not self._inputs

    async def _remove_inputs(self) -> None:
        ended = list(self._inputs)
        for start in range(0, len(ended), inputs.GROUP):
            group = ended[start : start + inputs.GROUP]
            try:
                await inputs.remove(self._bus, group)
            except SignalboxError as error:
                log.warning("sweep.input_removal_failed", inputs=len(self._inputs), why=str(error))
                break
            for subject in group:
                del self._inputs[subject]
        while len(self._inputs) > KEPT:  # left to the reconciler
            del self._inputs[next(iter(self._inputs))]

    async def _sweep_queue(self, queue: Queue) -> None:
        floor = await purge_acknowledged(self._bus, *queue)
        noted = self._acknowledged[queue] = deque(seq for seq in self._acknowledged[queue] if seq > floor)
        while len(noted) > KEPT:
            await remove(self._bus, noted[0])
            noted.popleft()
        if not noted:
            self._forget(queue)

    def _forget(self, queue: Queue) -> None:
        del self._acknowledged[queue], self._last[queue]
