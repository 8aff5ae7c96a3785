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
from functools import partial
from typing import Any, Final

import msgspec

from console.board.rows import Alarm, Figure
from console.board.view import LiveView
from console.feed.ends import read_ends
from console.feed.faults import NatsFaults
from console.feed.fronts import Fronts, Own
from console.feed.gauges import Gauges
from console.feed.health import Cursor, StorageFigure, gpus, read_health, workers
from console.feed.hub import Hub
from console.feed.jobs import JobEvents
from console.feed.leases import Leases
from console.feed.programs import Programs
from console.feed.queues import WatchedQueues
from console.feed.queueservice import ServiceQueues
from console.feed.results import Results
from console.feed.retry import RETRY_S, for_ever, until_done
from console.feed.scaling import FleetScaling
from console.feed.tables import Tables
from console.feed.watched import WatchedJobs
from signalbox.bus.client import Bus, Message
from signalbox.bus.disk import Reserve
from signalbox.jobs.reasons import Fleet, QueuedJob, QueuePosition
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.program.tasks import TaskGroup
from signalbox.wire.messages import decode
from signalbox.wire.names import KEY_USE, NATS_FAULT, NATS_STALLED, Bucket, Header, event_of_key, program_alive
from signalbox.wire.refused import RefusedConnections

FLUSH_S: Final = 0.1
TICK_S: Final = 1.0
HEALTH_S: Final = 5.0
"""Between two readings of what the health strip shows, while a browser watches."""
RECALL_S: Final = 60.0
"""Between two readings of what is wanted of the fleet, though no event told of another."""
AWAY_S: Final = 2.0
"""A link that is back within this time is no alarm."""
_AWAY: Final = (
    "NATS cannot be reached from here. Where gateways cannot reach it either, each submission is refused with 503 until"
    " it is back; accepted jobs wait and are not lost. What is shown below was so before."
)
_DISK_LOW: Final = "The disk of NATS has only the room that accepted jobs need: new ones get 503. Make room there."

Unpublished = Callable[[], Awaitable[dict[str, Alarm] | None]]
"""Tells what was decided and is not published, as alarms by key; None where the database does not answer."""


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
        self._watched = WatchedJobs(self.view, self.fleet, clock)
        self.hub = Hub(self.view, self._watched)
        self.bus: Bus | None = None
        self.faults = NatsFaults(self.view, clock)
        self.programs = Programs(self.view, clock)
        self._leases = Leases(self.view, clock)
        self._queues = WatchedQueues(self.view, clock)
        self.tables = Tables(self.view, self._queues, clock)
        self.tables.changed = self._watched.look_again
        self._results = Results(self.view)
        self._service_queues = ServiceQueues(self.view, clock)
        self.scaling = FleetScaling(self.view, self._watched.look_again)
        self._reconnected = asyncio.Event()
        self.programs.has_outbound_work = lambda: self._results.has_work() or self._service_queues.has_work()
        self._jobs = JobEvents(self.view, self._queues, self._watched, clock)
        self._gauges: Gauges | None = None
        self._storage = StorageFigure()
        self._reserve = Reserve(settings.nats_store, settings.nats_reserve_bytes)
        self._down_since: float | None = clock()

    @property
    def synced(self) -> asyncio.Event:
        """Set when everything has been read once."""
        return self._queues.synced

    @property
    def is_blind(self) -> bool:
        """Whether NATS is away, or nothing has been read from it yet."""
        return self.bus is None or not self.bus.is_connected or not self.synced.is_set()

    def fleet(self, model: str) -> Fleet | None:
        """What the jobs of a model wait for; None while nothing is known of it."""
        if self.is_blind:
            return None
        queues = self.view.queues
        return Fleet(self.tables.model(model), queues.is_paused(model), queues.workers(), hosts=self.scaling.hosts())

    async def locate(self, job_id: str, job: QueuedJob) -> QueuePosition:
        """Where a queued job stands, as far as NATS tells it soon. Raises nothing."""
        return await self._watched.locate(job_id, job)

    async def run(self) -> None:
        """Feeds the view until cancelled."""
        try:
            async with TaskGroup() as group:
                group.create_task(self._beat(), name="live beat")
                group.create_task(self._follow(group), name="live follow")
        finally:
            await self.tables.close()
            await self._results.close()
            await self._service_queues.close()
            await self.scaling.close()
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
        self.view.reported("disk", _DISK_LOW if self._reserve.is_low else "")
        self.faults.show(now)
        self.view.stand("fronts", self._fronts.alarms(now))
        if not self.is_blind:
            self.scaling.age(now)  # first: alarms heed what agents start and end
        self.view.age(now, is_blind=self.is_blind)
        self.programs.show(is_blind=self.is_blind)
        self.view.reported("away", _AWAY if self._is_away(now) else "")
        link = Figure("NATS", "failed", "away") if self.is_blind else Figure("NATS", "ok", "connected")
        self.view.health("nats", link)
        if self.is_blind:
            self.view.forget_health(kept="nats")
        else:
            self.view.health("workers", workers(self.view.workers(), self.view.wanted))
            self.view.health("lanes", gpus(self.view.lanes.rows()))

    def _is_away(self, now: float) -> bool:
        """Whether NATS is, and not only unread as this process has just started."""
        is_connected = self.bus is not None and self.bus.is_connected
        return not is_connected and self._down_since is not None and now - self._down_since >= AWAY_S

    # ------------------------------------------------------------------------------ NATS

    async def _follow(self, group: TaskGroup) -> None:
        bus = await self._connect()
        self.bus = bus
        self._gauges = Gauges(bus)
        self._watched.connect(bus)
        bus.on_reconnect(self._on_reconnect)
        for subject, receive in (
            (event_of_key(Bucket.LEASES), self._leases.receive),
            (NATS_FAULT, self.faults.receive_fault),
            (NATS_STALLED, self.faults.receive_stalled),
            (KEY_USE, self._on_front),
            (program_alive(), self.programs.receive),
        ):
            await until_done(partial(bus.subscribe, subject, receive))
        await until_done(partial(self._leases.recall, bus))
        await self.tables.start(bus)
        await self._results.start(bus)
        await self._service_queues.start(bus)
        await self.scaling.start(bus)
        for name, keep in (
            ("leases", partial(self._leases.keep, bus)),
            ("gauges", partial(self._queues.keep, self._gauges)),
            ("jobs", partial(self._jobs.keep, bus, self.hub)),
            ("watched jobs", self._watched.keep),
            ("health", partial(self._keep_health, bus)),
            ("scaling", self._keep_scaling),
        ):
            group.create_task(for_ever(name, keep), name=f"live {name}")

    async def _connect(self) -> Bus:
        while True:
            try:
                return await Bus.connect(self._settings, role="console", name="live")
            except SignalboxError as error:
                log.warning("live.nats_unreachable", reason=error.public_message)
                await asyncio.sleep(RETRY_S)

    async def _keep_scaling(self) -> None:
        """What is wanted is read anew after each reconnect, and at times: an event may have been missed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECALL_S):
                    await self._reconnected.wait()
            self._reconnected.clear()
            await until_done(self.scaling.recall)

    def _on_reconnect(self) -> None:
        self._reconnected.set()
        self._leases.mark_stale()
        self._queues.mark_all()
        self._watched.doubt()

    def _on_front(self, message: Message) -> None:
        if Header.FRONT not in message.headers:
            return
        try:
            refused_connections = decode(RefusedConnections, message.headers[Header.FRONT])
        except msgspec.MsgspecError as error:
            log.warning("live.unreadable_front", reason=str(error))
            return
        self._fronts.receive(refused_connections, self._clock())

    async def _keep_health(self, bus: Bus) -> None:
        """Reads dead letters, storage, how far projector and outbound are, the outbox, while a browser watches."""
        while True:
            if len(self.hub) and not self.is_blind:
                found, job_list = await read_health(bus, self._cursor, self._clock())
                self.programs.read(job_list)
                found["storage"] = await self._storage.read(bus, self._clock())
                self.view.stand("ends", await read_ends(bus, self._clock()))
                for name, row in found.items():
                    self.view.health(name, row)
            if len(self.hub) and self._unpublished is not None and (waiting := await self._unpublished()) is not None:
                self.view.stand("unpublished", waiting)
            await asyncio.sleep(HEALTH_S if len(self.hub) else TICK_S)
