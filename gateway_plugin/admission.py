"""How many jobs of a model may wait: refused with 429 above that, before anything is stored.

NATS is asked how long the queue is only now and then; in between what this plugin accepted is added.
Nobody is refused on that sum alone: it forgets what workers took meanwhile, so it is measured first.
"""

import asyncio
from typing import Final

from signalbox.bus import Bus
from signalbox.errors import NotFound, QueueFull, SignalboxError, Unavailable
from signalbox.messages import Model
from signalbox.names import PRIORITIES, consumer

_STALE_S: Final = 1.0
_RETRY_AFTER_S: Final = 2.0


class _Queue:
    """One model's queue. waiting: as last measured. since: accepted here after that was asked."""

    __slots__ = ("asking", "measured_at", "since", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.since = 0
        self.measured_at = float("-inf")
        self.asking: asyncio.Task[None] | None = None

    @property
    def length(self) -> int:
        return self.waiting + self.since


class Admission:
    """Guards the queues' lengths."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._queues: dict[str, _Queue] = {}

    async def admit(self, model: Model) -> None:
        """Count one job in. Raises :class:`QueueFull`; :class:`Unavailable` if nobody knows the length."""
        queue = self._queues.get(model.name)
        if queue is None:
            queue = self._queues[model.name] = _Queue()
        age_s = self._loop.time() - queue.measured_at
        is_full = queue.length >= model.limits.max_queue
        # While one caller measures a queue that is not full, the others need not wait for it.
        if is_full or (age_s > _STALE_S and queue.asking is None):
            await self._measure(model.name, queue)
            is_full = queue.length >= model.limits.max_queue
        if is_full:
            raise QueueFull(
                f'The queue of "{model.name}" is full: {queue.length} jobs wait, '
                f"{model.limits.max_queue} may. Nothing was accepted.",
                retry_after_s=_RETRY_AFTER_S,
                model=model.name,
                limit=model.limits.max_queue,
            )
        queue.since += 1

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        asking = [queue.asking for queue in self._queues.values() if queue.asking is not None]
        if asking:
            await asyncio.wait(asking)

    async def _measure(self, name: str, queue: _Queue) -> None:
        """One question for all who want to know."""
        if queue.asking is None:
            queue.asking = asyncio.create_task(self._ask(name, queue), name=f"queue of {name}")
            # The one who asked may be cancelled; its failure is then nobody's.
            queue.asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(queue.asking)

    async def _ask(self, name: str, queue: _Queue) -> None:
        queue_was, queue.since = queue.since, 0
        try:
            infos = await asyncio.gather(
                *(self._bus.consumer_info(consumer(name, priority)) for priority in PRIORITIES)
            )
            queue.waiting = sum(info.num_pending for info in infos)
            queue.measured_at = self._loop.time()
        except NotFound as error:
            raise Unavailable(
                f'The queue of "{name}" is not set up yet.', retry_after_s=_RETRY_AFTER_S
            ) from error
        except SignalboxError:
            queue.since += queue_was
            raise
        finally:
            queue.asking = None
