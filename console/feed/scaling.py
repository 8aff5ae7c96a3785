"""Follows what is wanted of the fleet, and the hosts that carry it out; remembers both for a quarter of an hour."""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from console.board import capacity
from console.board.capacity import Devices
from console.board.view import LiveView
from console.feed.retry import until_done
from signalbox.bus.client import Bus, Message, Subscription
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.wire.events import is_removal
from signalbox.wire.messages import decode
from signalbox.wire.names import SCALE, Bucket, event_of_key, key
from signalbox.wire.scaling import Host, Scale

STEP_S: Final = 5.0
KEPT: Final = 180


class Sample(NamedTuple):
    """Devices of all classes at an instant: that shall have a worker, and that have one."""

    at: float
    wanted: int
    actual: int


class FleetScaling:
    """What the controller wants and what there is. changed: called after each change of a host."""

    def __init__(self, view: LiveView, changed: Callable[[], None]) -> None:
        self._view = view
        self._changed = changed
        self._seen: object = None
        self._bus: Bus | None = None
        self._hosts: Table[Host] | None = None
        self._heard: Subscription | None = None
        view.is_ending = self._is_ending
        self._kept: dict[str, str] = {}
        """Workers that agents have told of, and the host of each."""
        self.scale: Scale | None = None
        """What is wanted; None where each device shall have workers."""
        self.history: deque[Sample] = deque(maxlen=KEPT)

    async def start(self, bus: Bus) -> None:
        """Reads what there is until NATS has answered, and follows it."""
        self._bus = bus
        self._hosts = Table(bus, Bucket.HOSTS, Host)
        self._hosts.on_change(lambda *_: self._changed())
        await until_done(self._hosts.start)
        await until_done(self._listen)
        await until_done(self.recall)

    async def _listen(self) -> None:
        assert self._bus is not None
        self._heard = await self._bus.subscribe(event_of_key(Bucket.DESIRED, SCALE), self._receive)

    async def recall(self) -> None:
        """Reads what is wanted anew. Raises :class:`Unavailable`."""
        assert self._bus is not None
        found = await self._bus.direct_get(Bucket.DESIRED.stream, key(Bucket.DESIRED, SCALE))
        self._take(found.data if found is not None else b"")

    def _receive(self, message: Message) -> None:
        self._take(b"" if is_removal(message.headers) else message.data)

    def _take(self, data: bytes) -> None:
        try:
            self.scale = decode(Scale, data) if data else None
        except msgspec.MsgspecError as error:
            log.warning("live.unreadable_scale", reason=str(error))

    def hosts(self) -> Collection[Host]:
        """Hosts whose agents are present."""
        return list(self._hosts.items().values()) if self._hosts is not None else []

    def devices(self) -> Devices:
        """Devices by class."""
        most = {name: one.most for name, one in self.scale.classes.items()} if self.scale is not None else {}
        return capacity.devices_of(most, self.hosts(), self._view.queues.workers())

    def age(self, now: float) -> None:
        """Called every second while NATS is there."""
        self._view.stand("capacity", capacity.alarms(self.scale))
        self._look_at_agents()
        devices = self.devices()
        seen = (self.scale.classes, self.scale.models) if self.scale is not None else None, devices
        if seen != self._seen:
            self._seen = seen
            self._view.fleet_stands(now)
        if self.scale is None:
            self._view.topics.topics["health"].remove("scaling")
            self.history.clear()
            return
        self._view.health("scaling", capacity.figure(self.scale, devices))
        if not self.history or now >= self.history[-1].at + STEP_S:
            wanted = sum(one.wanted for one in self.scale.classes.values())
            self.history.append(Sample(now, wanted, sum(devices.actual.values())))
            self._view.fleet_stands(now)

    def _look_at_agents(self) -> None:
        """What agents start, and what they have ended: a fleet that shrinks loses no worker."""
        hosts = {host.id: host for host in self.hosts()}
        classes = self.scale.classes.values() if self.scale is not None and hosts else None
        self._view.wanted = None if classes is None else sum(one.wanted for one in classes)
        told = {kept.id: (host.id, kept) for host in hosts.values() for kept in host.workers}
        self._view.is_starting = any(kept.state == "starting" and not kept.why for _, kept in told.values())
        self._view.ended(worker for worker, host in self._kept.items() if worker not in told and host in hosts)
        shown = {row.id for row in self._view.workers()}  # the presence of one may outlive its agent's word
        self._kept = {worker: host for worker, host in self._kept.items() if worker in shown}
        self._kept |= {worker: host for worker, (host, _) in told.items()}

    def _is_ending(self, worker_id: str) -> bool:
        """Whether an agent has said of a worker that it ends it. One that is waited for to come again is lost."""
        told = (kept for host in self.hosts() for kept in host.workers)
        return any(kept.id == worker_id and kept.state == "draining" for kept in told)

    async def close(self) -> None:
        """Follows no longer."""
        if self._heard is not None:
            await self._heard.close()
        if self._hosts is not None:
            await self._hosts.close()
