"""Bounds how many jobs of a model wait, and in which class: 429 above that, before anything is stored.

NATS is asked for the length of the queues only now and then; in between what this plugin let in is added.
No job is refused on that sum alone: it leaves out what workers took meanwhile, so the queue is measured first.
"""

import asyncio
from collections import OrderedDict
from functools import partial
from typing import Final

from gateway_plugin.admission.estimate import QueueCounts
from gateway_plugin.admission.fairness import LEAST, Shares
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.bus.client import Bus
from signalbox.jobs import delivery
from signalbox.program import metrics
from signalbox.program.errors import QueueFull
from signalbox.program.tasks import SingleFlight
from signalbox.program.words import counted
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Priority

_STALE_S: Final = 1.0
_STALE_WHEN_CROWDED_S: Final = 0.1
_RETRY_AFTER_S: Final = 2.0
_KEPT: Final = 8
"""One place of a queue in so many, and no more than ``fair_room`` of them, is kept from jobs in ``lo``."""
_MOST_QUEUES: Final = 1024
"""Most models whose queues are remembered; that of one that is asked for again is measured first."""

DEMOTED: Final = metrics.counter(
    "jobs_demoted", "Jobs put into lo because their account had its share of the class.", "model"
)


class _Queue:
    """One model's queue. measured_at: on the loop's clock."""

    __slots__ = ("measured_at", "shares")

    def __init__(self, room: int) -> None:
        self.shares = Shares(room)
        self.measured_at = float("-inf")


class QueueAdmission:
    """Guards the queues' lengths and the shares in them. fair_room: see :class:`Shares`."""

    def __init__(self, bus: Bus, workers: LiveWorkers, *, fair_room: int) -> None:
        self._bus = bus
        self._workers = workers
        self._room = fair_room
        self._loop = asyncio.get_running_loop()
        self._queues: OrderedDict[str, _Queue] = OrderedDict()
        self._measuring: SingleFlight[str, None] = SingleFlight()

    async def admit(self, model: Model, account: str, asked: Priority, *, named: Priority | None = None) -> Priority:
        """Count one job of an account in; returns the class it goes into, ``asked`` or ``lo``.

        named: where an earlier try of the same submission went: it is judged once. Raises :class:`QueueFull`;
        :class:`Unavailable` if the length is not known.
        """
        queue = self._queues.get(model.name) or self._opened(model.name)
        self._queues.move_to_end(model.name)
        shares, most = queue.shares, model.limits.max_queue
        given = named or shares.place(account, asked, self._loop.time(), most=most)
        is_full = shares.most >= self._limit(model, given)
        # While one caller measures a queue that is not full, the others need not wait for it.
        if is_full or (self._is_stale(queue, is_fair=given == asked) and model.name not in self._measuring):
            await self._measuring.ask(model.name, partial(self._measure, model.name, queue))
            given = named or shares.place(account, asked, self._loop.time(), most=most)
            is_full = shares.most >= self._limit(model, given)
        if is_full:
            raise self._full(model, given, shares.most)
        shares.enter(account, asked, given)
        if given not in {asked, named}:
            DEMOTED.labels(model.name).inc()
        return given

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._measuring.close()

    def _opened(self, name: str) -> _Queue:
        if len(self._queues) >= _MOST_QUEUES:
            self._queues.popitem(last=False)
        queue = self._queues[name] = _Queue(self._room)
        return queue

    def _is_stale(self, queue: _Queue, *, is_fair: bool) -> bool:
        """Whether to measure again: sooner where the queue is crowded, or where a job would be put into ``lo``."""
        is_crowded = self._room > 0 and (not is_fair or queue.shares.since >= self._room)
        bound_s = _STALE_WHEN_CROWDED_S if is_crowded else _STALE_S
        return self._loop.time() - queue.measured_at > bound_s

    def _limit(self, model: Model, given: Priority) -> int:
        """How many jobs may wait where one more enters this class: a flood of ``lo`` leaves places for the others."""
        most = model.limits.max_queue
        return most - min(self._room, most // _KEPT) if given == LEAST else most

    def _full(self, model: Model, given: Priority, length: int) -> QueueFull:
        limit = self._limit(model, given)
        where = " at this priority" if limit < model.limits.max_queue else ""
        waiting = counted(length, "job waits", "jobs wait")
        return QueueFull(
            f'The queue of "{model.name}" is full: {waiting}, {limit} may{where}. Nothing was accepted.',
            retry_after_s=_RETRY_AFTER_S,
            model=model.name,
            limit=limit,
        )

    async def _measure(self, name: str, queue: _Queue) -> None:
        for estimate in queue.shares.estimates.values():
            estimate.ask()
        infos = await delivery.states(self._bus, name, self._workers.generation)
        queue.measured_at = self._loop.time()
        reported = {priority: QueueCounts(info.num_pending, info.delivered) for priority, info in infos.items()}
        queue.shares.measured(reported, queue.measured_at)
