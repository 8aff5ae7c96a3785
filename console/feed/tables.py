"""Follows the tables of NATS into the board: workers, tickets, models, what is served, desired state."""

from collections.abc import Callable
from typing import Any

from console.board.view import LiveView
from console.feed.queues import WatchedQueues
from console.feed.retry import until_done
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire.modeldocs import Model, Serving
from signalbox.wire.names import Bucket, token, untoken
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Ticket, Worker


class Tables:
    """What the tables say, shown as it changes."""

    def __init__(self, view: LiveView, queues: WatchedQueues, clock: Callable[[], float]) -> None:
        self._view = view
        self._queues = queues
        self._clock = clock
        self._tables: list[Table[Any]] = []
        self._models: Callable[[str], Model | None] = lambda _: None
        self.changed: Callable[[], None] = lambda: None
        """Called after each change that may change how a job stands."""

    async def start(self, bus: Bus) -> None:
        """Reads each table until NATS has answered, and follows it."""
        workers = Table(bus, Bucket.WORKERS, Worker)
        tickets = Table(bus, Bucket.WAITERS, Ticket)
        models = Table(bus, Bucket.MODELS, Model, is_packed=True)
        desired = Table(bus, Bucket.DESIRED, Desired, is_packed=True)
        serving = Table(bus, Bucket.SERVING, Serving, is_packed=True)

        def show_rollout(key: str, *_: object) -> None:
            self._view.rollouts.show(untoken(key), models.get(key), serving.get(key))

        workers.on_change(self.on_worker)
        tickets.on_change(self._on_ticket)
        models.on_change(self._on_model)
        models.on_change(show_rollout)
        desired.on_change(self._on_desired)
        serving.on_change(show_rollout)
        self._models = models.get
        for table in (workers, models, desired):
            table.on_change(lambda *_: self.changed())
        self._tables = [workers, tickets, models, desired, serving]
        for table in self._tables:
            await until_done(table.start)

    def model(self, name: str) -> Model | None:
        """What was decided about a model."""
        return self._models(token(name))

    async def close(self) -> None:
        """Follows no longer."""
        for table in self._tables:
            await table.close()

    def on_worker(self, name: str, worker: Worker | None, _revision: int) -> None:
        """A worker's presence, or that it is gone."""
        for model in self._view.presence(worker.id if worker else untoken(name), worker, self._clock()):
            self._queues.mark(model)
        if self._view.queues.is_counting:  # else what is swept every few seconds is fresh enough
            for model in worker.waiting if worker else ():
                self._queues.mark(model)

    def _on_ticket(self, name: str, ticket: Ticket | None, revision: int) -> None:
        gpu, _, worker = name.partition(".")
        self._view.lanes.ticket(untoken(gpu), untoken(worker), ticket, revision=revision, now=self._clock())

    def _on_model(self, name: str, model: Model | None, _revision: int) -> None:
        self._view.model(untoken(name), model, self._clock())

    def _on_desired(self, name: str, desired: Desired | None, _revision: int) -> None:
        kind, _, what = name.partition(".")
        if kind == "worker":
            self._view.worker_desired(untoken(what), desired)
        elif kind == "model":
            self._view.queues.desired(untoken(what), desired, self._clock())
