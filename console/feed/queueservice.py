"""Follows the queues of the queue service: what is wrong with them, what waits there for models, and when a page that
shows one is to look again."""

from collections.abc import Callable
from typing import Any

from console.board import queueservice
from console.board.view import LiveView
from console.feed.retry import until_done
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire import names
from signalbox.wire.names import Bucket
from signalbox.wire.queues import Queue, QueueState


class ServiceQueues:
    """Shows alarms of queues as they change, and tells viewers of each change."""

    def __init__(self, view: LiveView, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self._tables: list[Table[Any]] = []
        self._known: set[str] = set()

    async def start(self, bus: Bus) -> None:
        """Reads each table until NATS has answered, and follows it."""
        queues = Table(bus, Bucket.QUEUES, Queue)
        states = Table(bus, Bucket.QUEUE_STATES, QueueState)

        def show(*_: object) -> None:
            self._view.stand("queueservice", queueservice.alarms(queues.items(), states.items()))
            self._view.queues.items(queueservice.waiting(queues.items(), states.items()), self._clock())

        def note(key: str, queue: Queue | None, _: int) -> None:
            (self._known.discard if queue is None else self._known.add)(key)

        def tell(key: str, state: QueueState | None, _: int) -> None:
            self._view.queue_stands(names.untoken(key), None if state is None else state.at)

        queues.on_change(note)
        queues.on_change(show)
        states.on_change(tell)
        states.on_change(show)
        self._tables = [queues, states]
        for table in self._tables:
            await until_done(table.start)

    def has_work(self) -> bool:
        """Whether there is any queue, which the outbound program is to keep."""
        return bool(self._known)

    async def close(self) -> None:
        """Follows no longer."""
        for table in self._tables:
            await table.close()
