"""The task ``services``: a forwarder for each service of each queue, for as long as the queue's document names it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.outbound.accountjobs import AccountJobs
from gateway_plugin.outbound.forwarding.forwarder import Forwarder, Opened, Parts
from gateway_plugin.outbound.forwarding.itemjobs import ItemJobs
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.queues import rear
from gateway_plugin.queues.items import Consumer, Item
from gateway_plugin.queues.made import Made
from gateway_plugin.queues.store import Store
from gateway_plugin.queues.tables import QueueTables
from gateway_plugin.queues.watching.openwatch import Watch
from gateway_plugin.queues.watching.presence import Presence
from gateway_plugin.queues.watching.watches import Watches
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background
from signalbox.wire import queuenames
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import DEFAULT_GROUP, Queue, QueueMark

_SOURCE: Final[Side] = "source"
_PAUSE_S: Final = 1.0
"""Before a forwarder that failed begins anew."""
_Service = tuple[str, float, str]
"""A queue's name, when it was made, and a model's name: one of the queue's name made later is another."""


class SourceTables:
    """Queues as a forwarder's watches have them, without ``max_delivery`` and ``max_idle``.

    An item that waits for a worker, or for room in the sink, was not tried in vain: the forwarder itself says when one
    is dead, or was with its model for too long.
    """

    def __init__(self, tables: QueueTables) -> None:
        self._tables = tables
        self.mark: Callable[[str, Side], QueueMark | None] = tables.mark
        self.on_change = tables.on_change

    def find(self, name: str) -> Queue | None:
        """A queue, None if there is none of that name."""
        found = self._tables.find(name)
        return None if found is None else replace(found, max_delivery=0, max_idle_s=0.0)


class Sources:
    """What forwarders do with the sources of queues. bus: to the account of the queue service."""

    def __init__(self, bus: Bus, watches: Watches) -> None:
        self._bus = bus
        self._watches = watches

    async def open(self, queue: Queue, consumer: Consumer, window: int) -> Opened:
        """A watch. Raises as :meth:`Watches.watch`."""
        return await self._watches.watch(queue, _SOURCE, consumer, Watch(window=window))

    async def commit(self, queue: Queue, index: int) -> None:
        """Commit an item for the services' group. Raises as :meth:`Watches.commit`."""
        await self._watches.commit(queue, _SOURCE, DEFAULT_GROUP, [index])

    async def give_back(self, queue: Queue, consumer: Consumer, index: int, code: str, reason: str) -> None:
        """Have an item given out again. Raises as :meth:`Watches.negative`."""
        await self._watches.negative(queue, _SOURCE, consumer, [index], code, reason)

    async def bury(self, queue: Queue, item: Item, code: str, reason: str) -> None:
        """Store a dead item in the rear queue. Raises as :func:`rear.bury`."""
        await rear.bury(self._bus, queue.name, _SOURCE, item, why=reason, code=code, group=DEFAULT_GROUP)


class Forwarding:
    """Takes items of queues to their services for as long as :meth:`work` runs. queue_bus: to the account of the queue
    service."""

    def __init__(self, bus: Bus, queue_bus: Bus, settings: OutboundSettings) -> None:
        self._bus = bus
        self._queue_bus = queue_bus
        self._settings = settings
        self._known: set[str] = set()
        self._changed: dict[str, asyncio.Event] = {}
        self._any_changed = asyncio.Event()
        self._running: dict[_Service, Background] = {}
        self._accounts: Counter[tuple[str, str]] = Counter()

    async def work(self) -> None:
        """Until cancelled. Raises :class:`Unavailable`; begun anew it goes on from what is stored."""
        tables = QueueTables(self._bus)
        tables.on_change(self._note)
        jobs = AccountJobs(self._bus, self._settings)
        watches = Watches(self._queue_bus, SourceTables(tables), Presence(self._queue_bus))
        made = Made(self._queue_bus)
        self._queue_bus.on_reconnect(made.forget)
        try:
            await tables.start()
            while not self._wanted(tables):  # so that the program keeps no keys and models for nothing
                self._any_changed.clear()
                await self._any_changed.wait()
            await jobs.start()
            await watches.start()
            parts = Parts(
                self._queue_bus,
                Store(self._queue_bus, tables),
                made,
                Sources(self._queue_bus, watches),
                ItemJobs(jobs, Offloading(self._settings.decode_timeout_s)),
                tables.find,
                lambda account, model: self._accounts[account, model],
                self._settings.service_window,
            )
            while True:
                self._any_changed.clear()
                await self._match(parts, self._wanted(tables))
                await self._any_changed.wait()
        finally:
            await self._match(None, {})
            self._queue_bus.forget_reconnect(made.forget)
            await watches.close()
            await jobs.close()
            await tables.close()

    def _note(self, name: str) -> None:
        self._known.add(name)
        self._any_changed.set()
        if name in self._changed:
            self._changed[name].set()

    def _wanted(self, tables: QueueTables) -> dict[_Service, Queue]:
        """The services of all queues."""
        found = {name: queue for name in self._known if (queue := tables.find(name)) is not None}
        self._known &= found.keys()
        return {(name, queue.created_at, model): queue for name, queue in found.items() for model in queue.services}

    async def _match(self, parts: Parts | None, wanted: dict[_Service, Queue]) -> None:
        """Have a forwarder for each service that is wanted, and no other."""
        self._accounts = Counter((queue.account_id, model) for (_, _, model), queue in wanted.items())
        for service in self._running.keys() - wanted.keys():
            await self._running.pop(service).cancel()
        for service in wanted.keys() - self._running.keys():
            assert parts is not None, "there is nothing to start without them"
            running = self._running[service] = Background()
            running.start(self._keep(parts, *service), name=f"service {service[2]} of queue {service[0]}")

    async def _keep(self, parts: Parts, name: str, created_at: float, model: str) -> None:
        """Have one service's forwarder run; after its source's stream has ended, when that goes on."""
        changed = self._changed.setdefault(name, asyncio.Event())
        while True:
            changed.clear()
            queue = parts.find(name)
            try:
                if queue is not None and queue.created_at == created_at:
                    await Forwarder(parts, queue, model, await self._stream_of(name)).run()
                await changed.wait()
            except SignalboxError as error:
                log.warning("forwarding.interrupted", queue=name, model=model, reason=error.public_message)
                await asyncio.sleep(_PAUSE_S)
            except Exception:  # noqa: BLE001  the edge of a task: other queues go on
                log.exception("forwarding.interrupted", queue=name, model=model)
                await asyncio.sleep(_PAUSE_S)

    async def _stream_of(self, name: str) -> str:
        """What tells the source's stream from one of its name before. Raises :class:`NotFound` while there is none."""
        stream = queuenames.queue_stream(name, _SOURCE)
        info = await self._queue_bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        return f"{stream} {info['created']}"
