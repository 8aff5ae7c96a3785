"""Follows the tables of NATS into the board: workers, tickets, models, what is served, desired state."""

from collections.abc import Callable
from typing import Any

from console.board.view import LiveView
from console.feed.queues import WatchedQueues
from console.feed.retry import until_done
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire.messages import Desired, Model, Serving, Ticket, Worker
from signalbox.wire.names import Bucket, untoken


class Tables:
    """What the tables say, shown as it changes."""

    def __init__(self, view: LiveView, queues: WatchedQueues, clock: Callable[[], float]) -> None:
        self._view = view
        self._queues = queues
        self._clock = clock
        self._tables: list[Table[Any]] = []

    async def start(self, bus: Bus) -> None:
        """Reads each table until NATS has answered, and follows it."""
        followed: tuple[tuple[Bucket, type[Any], Callable[[str, Any, int], None]], ...] = (
            (Bucket.WORKERS, Worker, self.on_worker),
            (Bucket.WAITERS, Ticket, self._on_ticket),
            (Bucket.MODELS, Model, self._on_model),
            (Bucket.DESIRED, Desired, self._on_desired),
            (Bucket.SERVING, Serving, self._on_serving),
        )
        for bucket, type_, on_change in followed:
            table: Table[Any] = Table(bus, bucket, type_)
            table.on_change(on_change)
            self._tables.append(table)
            await until_done(table.start)

    async def close(self) -> None:
        """Follows no longer."""
        for table in self._tables:
            await table.close()

    def on_worker(self, name: str, worker: Worker | None, _revision: int) -> None:
        """A worker's presence, or that it is gone."""
        self._view.presence(worker.id if worker else untoken(name), worker, self._clock())
        if self._view.queues.is_counting:  # else what is swept every few seconds is fresh enough
            for model in worker.waiting if worker else ():
                self._queues.mark(model)

    def _on_ticket(self, name: str, ticket: Ticket | None, revision: int) -> None:
        gpu, _, worker = name.partition(".")
        self._view.lanes.ticket(untoken(gpu), untoken(worker), ticket, revision=revision, now=self._clock())

    def _on_model(self, name: str, model: Model | None, _revision: int) -> None:
        model_name = untoken(name)
        self._view.model(model_name, model, self._clock())
        if model is None:
            self._queues.forget(model_name)
        else:
            self._queues.add(model_name)

    def _on_serving(self, name: str, record: Serving | None, _revision: int) -> None:
        self._view.rollouts.serving(untoken(name), record)

    def _on_desired(self, name: str, desired: Desired | None, _revision: int) -> None:
        kind, _, what = name.partition(".")
        if kind == "worker":
            self._view.worker_desired(untoken(what), desired)
        elif kind == "model":
            self._view.queues.desired(untoken(what), desired, self._clock())
