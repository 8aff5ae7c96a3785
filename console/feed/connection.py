"""Feeds the live view of this console process from one connection to NATS, and runs with none.

Tables (presence, tickets, models, desired state) and leases are followed always; job events only while
a browser watches (and a minute longer), because a ticker that is not shown needs none. Gauges
are read after events, and every few seconds besides.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from console.board.rows import Alarm, Figure
from console.board.view import LiveView
from console.feed import history
from console.feed.fronts import Fronts, Own
from console.feed.gauges import Gauges
from console.feed.health import Cursor, gpus, read_health
from console.feed.hub import Hub
from console.feed.storage import StorageFigure
from signalbox.bus.client import Bus, Message, Subscription
from signalbox.bus.disk import Reserve
from signalbox.bus.jetstream import unix_time
from signalbox.bus.stalls import WHY
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.messages import (
    Desired,
    Job,
    Lease,
    Model,
    Record,
    RefusedConnections,
    Serving,
    Ticket,
    Worker,
    decode,
)
from signalbox.wire.names import (
    KEY_USE,
    NATS_FAULT,
    NATS_STALLED,
    Bucket,
    Header,
    event_of_jobs,
    event_of_key,
    event_of_state,
    key,
    untoken,
)

FLUSH_S: Final = 0.1
TICK_S: Final = 1.0
RETRY_S: Final = 1.0
"""Between attempts to reach NATS the first time; afterwards the connection reconnects by itself."""
GAUGE_S: Final = 0.2
"""Between two readings of gauges that events asked for."""
SWEEP_S: Final = 5.0
"""Between two readings of all gauges, whether anything happened or not."""
DISCOVER_S: Final = 60.0
LINGER_S: Final = 60.0
"""How long job events are followed after the last viewer has gone."""
LEASE_TTL_S: Final = 20.0
"""Lease time shown where a write does not say its own."""

FAULT_KEPT_S: Final = 5.0
"""How long a fault of NATS stays on the board after its last report; it is reported every second."""
_DISK_LOW: Final = "The disk of NATS has only the room that accepted jobs need: new ones get 503. Make room there."

Unpublished = Callable[[], Awaitable[dict[str, Alarm] | None]]
"""Tells what was decided and is not published, as alarms by key; None where the database does not answer."""
_UNITS: Final = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0))


class Feed:
    """One per process. ``run`` it in a task; read ``hub``."""

    def __init__(
        self,
        settings: Wire,
        *,
        clock: Callable[[], float] = time.time,
        cursor: Cursor | None = None,
        unpublished: Unpublished | None = None,
        refused_connections: Own | None = None,
    ) -> None:
        """cursor: tells how far the projector has got, or None where it is not known. unpublished: what NATS lacks.

        refused_connections: connections that this process turns away.
        """
        self._fronts = Fronts(refused_connections)
        self._unpublished = unpublished
        self._settings = settings
        self._clock = clock
        self._cursor = cursor
        self.view = LiveView(secrets.token_hex(4), clock())
        self.hub = Hub(self.view)
        self.bus: Bus | None = None
        self.synced = asyncio.Event()
        """Set when everything has been read once."""
        self._tables: list[Table[Any]] = []
        self._gauges: Gauges | None = None
        self._storage = StorageFigure()
        self._reserve = Reserve(settings.nats_store, settings.nats_reserve_bytes)
        self._fault, self._fault_until = "", float("-inf")
        self._stalled_until = float("-inf")
        self._models: set[str] = set()
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._leases_stale = asyncio.Event()
        self._lease_seqs: dict[str, int] = {}
        self._watching: list[Subscription] = []
        self._watched_until = 0.0
        self._down_since: float | None = clock()

    @property
    def is_blind(self) -> bool:
        """Whether NATS is away, or nothing has been read from it yet."""
        return self.bus is None or not self.bus.is_connected or not self.synced.is_set()

    @property
    def is_following(self) -> bool:
        """Whether job events are being followed, because a browser watches."""
        return bool(self._watching)

    async def run(self) -> None:
        """Feeds the view until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat(), name="live beat")
                group.create_task(self._follow(group), name="live follow")
        finally:
            for table in self._tables:
                await table.close()
            if self.bus is not None:
                with contextlib.suppress(SignalboxError):
                    await self.bus.close()

    def source(self, now: float) -> dict[str, Any]:
        """What the tick says of where the data come from."""
        if self.is_blind:
            return {"nats": "down", "since": self._down_since or now}
        round_trip_s = self._gauges.round_trip_s if self._gauges else 0.0
        return {"nats": "ok", "lag_ms": round(round_trip_s * 1000, 1)}

    # ------------------------------------------------------------------------------ beat

    async def _beat(self) -> None:
        """Flushes every tenth of a second while a browser watches, ticks every second."""
        ticked_at, was_blind = 0.0, True
        while True:
            await asyncio.sleep(FLUSH_S if len(self.hub) else TICK_S)
            now = self._clock()
            try:
                # A link that comes or goes is told at once: NATS may be away for less than a second.
                if now >= ticked_at + TICK_S or self.is_blind != was_blind:
                    ticked_at, was_blind = now, self.is_blind
                    self._each_second(now)
                    self.hub.flush(now)
                    self.hub.tick(now, self.source(now))
                else:
                    self.hub.flush(now)
            except Exception:  # noqa: BLE001  the edge of a task: the board must go on beating
                log.exception("live.beat_failed")

    def _each_second(self, now: float) -> None:
        if self.is_blind:
            self._down_since = self._down_since or now
        else:
            self._down_since = None
        self.view.told("disk", _DISK_LOW if self._reserve.is_low else "")
        self._show_fault(now)
        self.view.fronts(self._fronts.alarms(now))
        self.view.age(now, is_blind=self.is_blind)
        workers = self.view.workers()
        alive = sum(w.state != "lost" for w in workers)
        link = Figure("NATS", "failed", "away") if self.is_blind else Figure("NATS", "ok", "connected")
        self.view.health("nats", link)
        self.view.health(
            "workers", Figure("Workers", "ok" if alive and alive == len(workers) else "late", f"{alive}/{len(workers)}")
        )
        self.view.health("lanes", gpus(self.view.lanes.rows()))

    # ------------------------------------------------------------------------------ NATS

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        bus = await self._connect()
        self.bus = bus
        self._gauges = Gauges(bus)
        bus.on_reconnect(self._on_reconnect)
        await bus.subscribe(event_of_key(Bucket.LEASES), self._on_lease)
        await bus.subscribe(NATS_FAULT, self._on_fault)
        await bus.subscribe(NATS_STALLED, self._on_stalled)
        await bus.subscribe(KEY_USE, self._on_front)
        self._tables = [
            self._table(bus, Bucket.WORKERS, Worker, self._on_worker),
            self._table(bus, Bucket.WAITERS, Ticket, self._on_ticket),
            self._table(bus, Bucket.MODELS, Model, self._on_model),
            self._table(bus, Bucket.DESIRED, Desired, self._on_desired),
            self._table(bus, Bucket.SERVING, Serving, self._on_serving),
        ]
        await self._until_done(self._recall)
        for table in self._tables:
            await self._until_done(table.start)
        group.create_task(self._for_ever(self._keep_leases), name="live leases")
        group.create_task(self._for_ever(self._keep_gauges), name="live gauges")
        group.create_task(self._for_ever(self._keep_watch), name="live watch")
        group.create_task(self._for_ever(self._keep_health), name="live health")

    async def _connect(self) -> Bus:
        while True:
            try:
                return await Bus.connect(self._settings, role="console", name="live")
            except SignalboxError as error:
                log.warning("live.nats_unreachable", reason=error.public_message)
                await asyncio.sleep(RETRY_S)

    async def _until_done(self, act: Callable[[], Awaitable[None]]) -> None:
        """Repeats what NATS must answer until it does."""
        while True:
            try:
                return await act()
            except SignalboxError as error:
                log.warning("live.read_failed", reason=error.public_message)
                await asyncio.sleep(RETRY_S)

    @staticmethod
    async def _for_ever(keep: Callable[[], Awaitable[None]]) -> None:
        """Run one task of the board; no error that a message or answer causes ends it."""
        while True:
            try:
                await keep()
            except Exception:  # noqa: BLE001  logged, and tried again
                log.exception("live.task_failed", task=getattr(keep, "__name__", "?"))
                await asyncio.sleep(RETRY_S)

    def _table(
        self, bus: Bus, bucket: Bucket, type_: type[Any], on_change: Callable[[str, Any, int], None]
    ) -> Table[Any]:
        table: Table[Any] = Table(bus, bucket, type_)
        table.on_change(on_change)
        return table

    def _on_reconnect(self) -> None:
        self._leases_stale.set()
        self._dirty |= self._models
        self._wake.set()

    async def _recall(self) -> None:
        """History first, then the leases as they are."""
        bus = self._require_bus()
        now = self._clock()
        for gpu, intervals in (await history.strips(bus, now)).items():
            self.view.lanes.seed(gpu, intervals, now)
        await self._read_leases()

    async def _read_leases(self) -> None:
        bus = self._require_bus()
        stored = await bus.list_latest(Bucket.LEASES.stream, [key(Bucket.LEASES, ">")])
        now = self._clock()
        prefix = len(key(Bucket.LEASES, ""))
        for message in stored:
            self._take_lease(message.subject[prefix:], message.headers, message.data, message.seq, message.time, now)
        for name in set(self._lease_seqs) - {m.subject[prefix:] for m in stored}:
            del self._lease_seqs[name]
            self.view.lease(untoken(name), None, revision=0, at=now, ttl_s=0.0, now=now)

    async def _keep_leases(self) -> None:
        """Reads the leases again after each reconnect, for what was missed."""
        while True:
            await self._leases_stale.wait()
            self._leases_stale.clear()
            await self._until_done(self._read_leases)

    def _on_fault(self, message: Message) -> None:
        now = self._clock()
        self._fault, self._fault_until = (message.data.decode(errors="replace")[:500], now + FAULT_KEPT_S)
        self._show_fault(now)

    def _on_stalled(self, _message: Message) -> None:
        now = self._clock()
        self._stalled_until = now + FAULT_KEPT_S
        self._show_fault(now)

    def _show_fault(self, now: float) -> None:
        """One alarm for all reports of a fault. The server's supervisor outranks programs that miss answers."""
        text = self._fault if now < self._fault_until else ""
        self.view.told("nats", text or (WHY if now < self._stalled_until else ""))

    def _on_lease(self, message: Message) -> None:
        headers = message.headers
        prefix = len(event_of_key(Bucket.LEASES, ""))
        at = unix_time(headers[Header.TIME_STAMP])
        seq = int(headers[Header.SEQUENCE])
        self._take_lease(message.subject[prefix:], headers, message.data, seq, at, self._clock())

    def _take_lease(self, name: str, headers: Any, data: bytes, seq: int, at: float, now: float) -> None:
        if seq <= self._lease_seqs.get(name, 0):
            return
        self._lease_seqs[name] = seq
        try:
            lease: Lease | None = history.lease_of(headers, data)
        except msgspec.MsgspecError as error:
            log.warning("live.unreadable_lease", gpu=name, reason=str(error))
            return
        gpu = lease.gpu if lease else untoken(name)
        ttl_s = _seconds(headers.get(Header.TTL, ""))
        if lease is not None and lease.state == "HELD" and not ttl_s:
            ttl_s = LEASE_TTL_S
        self.view.lease(gpu, lease, revision=seq, at=at, ttl_s=ttl_s, now=now)

    def _on_worker(self, name: str, worker: Worker | None, _revision: int) -> None:
        self.view.presence(worker.id if worker else untoken(name), worker, self._clock())
        if self._watching:  # else what is swept every few seconds is fresh enough
            for model in worker.waiting if worker else ():
                self._mark_dirty(model)

    def _on_front(self, message: Message) -> None:
        if Header.FRONT not in message.headers:
            return
        try:
            refused_connections = decode(RefusedConnections, message.headers[Header.FRONT])
        except msgspec.MsgspecError as error:
            log.warning("live.unreadable_front", reason=str(error))
            return
        self._fronts.hear(refused_connections, self._clock())

    def _on_ticket(self, name: str, ticket: Ticket | None, revision: int) -> None:
        gpu, _, worker = name.partition(".")
        self.view.ticket(untoken(gpu), untoken(worker), ticket, revision=revision, now=self._clock())

    def _on_model(self, name: str, model: Model | None, _revision: int) -> None:
        model_name = untoken(name)
        self.view.model(model_name, model, self._clock())
        if model is not None:
            self._models.add(model_name)
        self._mark_dirty(model_name)

    def _on_serving(self, name: str, record: Serving | None, _revision: int) -> None:
        self.view.serving(untoken(name), record)

    def _on_desired(self, name: str, desired: Desired | None, _revision: int) -> None:
        kind, _, what = name.partition(".")
        if kind == "worker":
            self.view.worker_desired(untoken(what), desired)
        elif kind == "model":
            self.view.model_desired(untoken(what), desired, self._clock())

    # ------------------------------------------------------------------------------ jobs

    async def _keep_watch(self) -> None:
        """Follows job events while a browser watches."""
        while True:
            now = self._clock()
            if len(self.hub):
                self._watched_until = now + LINGER_S
            is_wanted = now < self._watched_until
            if is_wanted and not self._watching:
                await self._until_done(self._watch)
            elif not is_wanted and self._watching:
                watching, self._watching = self._watching, []
                for subscription in watching:
                    await subscription.close()
            await asyncio.sleep(FLUSH_S)

    async def _watch(self) -> None:
        """Listens first and reads then, so that nothing falls between what happened before and what happens."""
        bus = self._require_bus()
        jobs = await bus.subscribe(event_of_jobs(), self._on_job)
        try:
            records = await bus.subscribe(event_of_state(), self._on_record)
        except SignalboxError:
            await jobs.close()
            raise
        try:
            self.view.earlier(await history.transitions(bus))
        except SignalboxError:
            await jobs.close()
            await records.close()
            raise
        self._watching = [jobs, records]

    def _on_job(self, message: Message) -> None:
        headers = message.headers
        if Header.JOB not in headers:
            return
        job = decode(Job, headers[Header.JOB])
        self._mark_dirty(job.model)
        self.view.accepted(job, unix_time(headers[Header.TIME_STAMP]), self._clock())

    def _on_record(self, message: Message) -> None:
        headers = message.headers
        if Header.RECORD not in headers:
            return
        record = decode(Record, headers[Header.RECORD])
        self._mark_dirty(record.model)
        self.view.record(record, unix_time(headers[Header.TIME_STAMP]), self._clock())

    def _mark_dirty(self, model: str) -> None:
        self._dirty.add(model)
        self._wake.set()

    async def _keep_gauges(self) -> None:
        """Reads the gauges of models that something happened to, and of all every few seconds."""
        swept_at = discovered_at = 0.0
        while True:
            now = self._clock()
            try:
                if now >= discovered_at + DISCOVER_S:
                    self._models |= await self._require_gauges().models()
                    discovered_at = now
                if now >= swept_at + SWEEP_S:
                    self._dirty |= self._models
                    swept_at = now
                dirty, self._dirty = self._dirty, set()
                for model in sorted(dirty):
                    await self._read_gauge(model)
                self.synced.set()
            except* SignalboxError as errors:
                log.warning("live.gauges_failed", reason=str(errors.exceptions[0]))
                swept_at = 0.0
            await asyncio.sleep(GAUGE_S)
            if not self._dirty:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(GAUGE_S, swept_at + SWEEP_S - self._clock())):
                        await self._wake.wait()

    async def _read_gauge(self, model: str) -> None:
        has_prefetched = self.view.queues.has_prefetched(model)
        gauge = await self._require_gauges().read(model, self._clock(), has_prefetched=has_prefetched)
        if gauge is not None:
            self._models.add(model)
            self.view.gauge(model, gauge, self._clock(), is_counting=bool(self._watching))

    # ------------------------------------------------------------------------------ health

    async def _keep_health(self) -> None:
        """Reads dead letters, storage and the projector's lag, while a browser watches."""
        while True:
            if len(self.hub) and not self.is_blind:
                for name, row in (await read_health(self._require_bus(), self._cursor, self._clock())).items():
                    self.view.health(name, row)
                if self._unpublished is not None and (found := await self._unpublished()) is not None:
                    self.view.unpublished(found)
                filled = await self._storage.read(self._require_bus(), self._clock())
                self.view.health("storage", filled)
            await asyncio.sleep(SWEEP_S if len(self.hub) else TICK_S)

    def _require_bus(self) -> Bus:
        if self.bus is None:
            raise Unavailable("NATS has not been reached yet.")
        return self.bus

    def _require_gauges(self) -> Gauges:
        if self._gauges is None:
            raise Unavailable("NATS has not been reached yet.")
        return self._gauges


def _seconds(text: str) -> float:
    """Seconds of a ``Nats-TTL`` header: a number, or a Go duration with one unit."""
    unit, factor = next((u for u in _UNITS if text.endswith(u[0])), ("", 1.0))
    try:
        return float(text.removesuffix(unit)) * factor
    except ValueError:
        return 0.0
