"""Whether a model's queue takes one job more, for operators: no account's share binds them, the queue's length does."""

import asyncio
from typing import Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.jobs import delivery
from signalbox.program.errors import QueueFull
from signalbox.program.words import counted
from signalbox.wire.messages import Record, decode
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket, key, token

_STALE_S: Final = 1.0
_MOST_MODELS: Final = 256
_RETRY_AFTER_S: Final = 2.0


class _Queue(NamedTuple):
    """A model's queue. length: of its messages, as measured and let in since. most: 0 = the model is not there."""

    length: int
    most: int
    measured_at: float


class QueueRoom:
    """Judges for one program. Many jobs of a model are judged by one measurement a second."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._queues: dict[str, _Queue] = {}

    async def admit(self, record: Record) -> None:
        """Count one message more of the job's model. Raises :class:`QueueFull`, :class:`Unavailable`."""
        name = record.model
        queue = self._queues.get(name)
        if queue is None or self._loop.time() > queue.measured_at + _STALE_S:
            queue = await self._measured(name)
        if queue.most and queue.length >= queue.most:
            waiting = counted(queue.length, "job waits or runs", "jobs wait or run")
            raise QueueFull(
                f'The queue of "{name}" is full: {waiting}, {queue.most} may. Nothing was changed: raise the job when '
                "some of them have run, or make the queue longer.",
                retry_after_s=_RETRY_AFTER_S,
                model=name,
                limit=queue.most,
            )
        self._queues[name] = queue._replace(length=queue.length + 1)

    async def _measured(self, name: str) -> _Queue:
        if len(self._queues) >= _MOST_MODELS:
            self._queues.clear()
        stored = await self._bus.leader_get(Bucket.MODELS.stream, key(Bucket.MODELS, token(name)))
        model = decode(Model, stored.data) if stored is not None and stored.data else None
        length, _ = await delivery.stored(self._bus, name)
        return _Queue(length, model.limits.max_queue if model is not None else 0, self._loop.time())
