"""What is known of each model's load, from NATS: what waits, how long, what workers do. Read as the board reads it."""

import time
from collections.abc import Callable, Collection

import msgspec
from msgspec.structs import replace

from console.board.protocol import Topic
from console.board.queues import QueueRows
from console.board.queueservice import oldest, waiting
from console.board.rows import Queue
from console.feed.gauges import Gauges
from console.feed.queues import WatchedQueues
from console.feed.retry import until_done
from console.scaling.rules import Load
from signalbox.bus.client import Bus, Message, Subscription
from signalbox.bus.table import Table
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket, Header, event_of_jobs, model_of_event, untoken
from signalbox.wire.queues import Queue as ServiceQueue
from signalbox.wire.queues import QueueState
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker


class _Rows(Topic):
    """Rows that nobody is sent: it does not gather what has changed."""

    def set(self, key: str, row: msgspec.Struct) -> None:
        self.rows[key] = row

    def remove(self, key: str) -> None:
        self.rows.pop(key, None)


class Loads:
    """Follows the queues of all models, and those of the queue service that models take from.

    ticks: clock of :attr:`Load.called_at`, that does not go back. clock: UNIX time, as of the documents in NATS.
    """

    def __init__(
        self, bus: Bus, ticks: Callable[[], float] = time.monotonic, clock: Callable[[], float] = time.time
    ) -> None:
        self._ticks = ticks
        self._called: dict[str, float] = {}
        self._bus = bus
        self._clock = clock
        self._rows = _Rows("queues")
        self.queues = QueueRows(self._rows, _Rows("throughput"), clock())
        self._watched = WatchedQueues(self, clock)
        self._workers: Table[Worker] = Table(bus, Bucket.WORKERS, Worker)
        self._models: Table[Model] = Table(bus, Bucket.MODELS, Model, is_packed=True)
        self._desired: Table[Desired] = Table(bus, Bucket.DESIRED, Desired, is_packed=True)
        self._service_queues: Table[ServiceQueue] = Table(bus, Bucket.QUEUES, ServiceQueue)
        self._queue_states: Table[QueueState] = Table(bus, Bucket.QUEUE_STATES, QueueState)
        self._tables = self._models, self._desired, self._workers, self._service_queues, self._queue_states
        self._accepted: Subscription | None = None
        self.replicas: dict[str, int] = {}
        """Of the models that take jobs."""

    async def start(self) -> None:
        """Read who is there; repeats what NATS must answer until it does."""
        self._workers.on_change(self._on_worker)
        self._models.on_change(self._on_model)
        self._desired.on_change(self._on_desired)
        self._service_queues.on_change(self._on_service_queue)
        self._queue_states.on_change(self._on_service_queue)
        self._bus.on_reconnect(self._watched.mark_all)
        for table in self._tables:
            await until_done(table.start)
        await until_done(self._listen)

    async def keep(self) -> None:
        """Reads what waits, of the models that may have jobs, until cancelled."""
        await self._watched.keep(Gauges(self._bus))

    async def close(self) -> None:
        """Follow nothing more."""
        self._bus.forget_reconnect(self._watched.mark_all)
        self._watched.forget_metrics()
        if self._accepted is not None:
            await self._accepted.close()
        for table in self._tables:
            await table.close()

    @property
    def is_known(self) -> bool:
        """Whether what waits has been read of every model that has jobs."""
        return self._watched.synced.is_set()

    def workers(self) -> Collection[Worker]:
        """Those that are present."""
        return self._workers.items().values()

    def called(self) -> dict[str, Load]:
        """The models that somebody calls, and what is known of them."""
        now = self._clock()
        self.queues.age(now)
        items = oldest(self._service_queues.items(), self._queue_states.items())
        return {name: self._load(name, row, items.get(name), now) for name, row in self.queues.called().items()}

    def _load(self, name: str, row: Queue, oldest_item_at: float | None, now: float) -> Load:
        since = [at for at in (row.oldest_at, oldest_item_at) if at is not None]
        if row.is_paused:  # nothing of what waits may begin, however many devices there are
            row, since = replace(row, waiting=0, lost=0, items=0), []
            self._called.pop(name, None)
        speeds = [worker.rates[name] for worker in self.workers() if worker.rates.get(name)]
        return Load(
            waiting=row.waiting + row.lost,
            items=row.items,
            running=row.running,
            oldest_s=max(0.0, now - min(since, default=now)),
            run_s=len(speeds) / sum(speeds) if speeds else 0.0,
            arrived_per_s=row.arrived_per_s,
            devices=max(1, row.replicas),
            ready=row.ready,
            called_at=self._called.get(name),
        )

    def _on_worker(self, key: str, worker: Worker | None, _revision: int) -> None:
        # Of jobs that a worker has pulled its presence tells, not the queue.
        moved = self.queues.presence(untoken(key), worker, self._clock())
        for model in {*moved, *(worker.waiting if worker else ())}:
            self._watched.mark(model)

    def _on_model(self, key: str, model: Model | None, _revision: int) -> None:
        name = untoken(key)
        self.queues.model(name, model, self._clock())
        if model is not None and model.is_enabled and model.versions:
            self.replicas[name] = model.replicas
        else:
            self.replicas.pop(name, None)
            self._called.pop(name, None)

    def _on_desired(self, key: str, desired: Desired | None, _revision: int) -> None:
        kind, _, what = key.partition(".")
        if kind == "model":
            self.queues.desired(untoken(what), desired, self._clock())

    def _on_service_queue(self, *_: object) -> None:
        self.queues.items(waiting(self._service_queues.items(), self._queue_states.items()), self._clock())

    async def _listen(self) -> None:
        self._accepted = await self._bus.subscribe(event_of_jobs(), self._on_job)

    def _on_job(self, message: Message) -> None:
        if Header.JOB in message.headers:
            model = model_of_event(message.subject)
            self._called[model] = self._ticks()
            self.queues.accepted(model, self._clock())
            self._watched.mark(model)
