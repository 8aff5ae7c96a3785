"""The position of a job in its queue, from what consumers report."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from signalbox.bus.client import Bus, ConsumerInfo
from signalbox.jobs import delivery
from signalbox.program.tasks import SingleFlight
from signalbox.wire.names import PRIORITIES, Priority, Stream
from signalbox.wire.workerdocs import Worker

_FRESH_S: Final = 0.25
"""How long an answer of NATS is used again: a thousand waiting callers ask at most four times a second."""


class Position(NamedTuple):
    """A job's position. ``ahead``: jobs before it (0 = next); None = a worker has it already."""

    ahead: int | None


_Queue = tuple[str, Priority]


class _Answer(NamedTuple):
    info: ConsumerInfo
    first_seq: int
    last_seq: int
    at: float


class Queues:
    """Positions, asked from NATS at most every quarter second per queue, once for all who ask together.

    workers: those that are present.
    """

    def __init__(self, bus: Bus, workers: Callable[[], Iterable[Worker]]) -> None:
        self._bus = bus
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._answers: dict[_Queue, _Answer] = {}
        self._asking: SingleFlight[_Queue, _Answer] = SingleFlight()

    async def position(self, model: str, priority: Priority, seq: int) -> Position:
        """Where the job with sequence ``seq`` in ``JOBS`` stands. Raises :class:`Unavailable`.

        Jobs of a higher priority count as before it. Within its queue the place is interpolated: other models' jobs
        share the sequence, so it is exact only at the ends.
        """
        info, first_seq, last_seq, _ = await self._ask(model, priority)
        if seq <= info.delivered_stream_seq:
            return Position(None)
        ahead = await self._waiting_above(model, priority)
        # A consumer that has delivered nothing says 0, and a stream may begin at any number.
        before = max(info.delivered_stream_seq, first_seq - 1)
        share = (seq - before) / (max(last_seq, seq) - before)
        return Position(ahead + max(0, round(info.num_pending * share) - 1))

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._asking.close()

    async def _waiting_above(self, model: str, priority: Priority) -> int:
        above = PRIORITIES[: PRIORITIES.index(priority)]
        return sum([(await self._ask(model, p)).info.num_pending for p in above])

    async def _ask(self, model: str, priority: Priority) -> _Answer:
        queue = (model, priority)
        known = self._answers.get(queue)
        if known is not None and self._loop.time() - known.at < _FRESH_S:
            return known
        return await self._asking.ask(queue, partial(self._fetch, queue))

    async def _fetch(self, queue: _Queue) -> _Answer:
        model, priority = queue
        generation = delivery.generation_of(self._workers())
        info, stream = await asyncio.gather(
            delivery.state(self._bus, model, priority, generation),
            self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}"),
        )
        state = stream["state"]
        answer = _Answer(info, state["first_seq"], state["last_seq"], self._loop.time())
        self._answers[queue] = answer
        return answer
