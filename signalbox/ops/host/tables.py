"""What a host's agent knows of the fleet: presence of hosts and workers, what is wanted, and what operators decided."""

from collections.abc import Callable
from typing import Any

from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire import names
from signalbox.wire.names import Bucket, token
from signalbox.wire.scaling import Host, Scale
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker


class HostTables:
    """The tables of one agent. changed: called after each change that may concern it."""

    def __init__(self, bus: Bus, host: str, changed: Callable[[], None]) -> None:
        self._key = token(host)
        self._desired_key = names.desired_host(host)
        self._changed = changed
        self._hosts = Table(bus, Bucket.HOSTS, Host)
        self._workers = Table(bus, Bucket.WORKERS, Worker)
        self._scale = Table(bus, Bucket.DESIRED, Scale)
        self._desired = Table(bus, Bucket.DESIRED, Desired)

    async def start(self, on_worker: Callable[[str, Worker | None], None], on_host_gone: Callable[[], None]) -> None:
        """Read all. on_worker: called with each presence of a worker, by key. Raises :class:`Unavailable`."""
        self._hosts.on_change(lambda _key, host, _revision: on_host_gone() if host is None else None)
        self._hosts.on_change(lambda *_: self._changed())
        self._scale.on_change(lambda key, *_: self._changed() if key == names.SCALE else None)
        self._desired.on_change(lambda key, *_: self._changed() if key == self._desired_key else None)
        self._workers.on_change(lambda key, worker, _: on_worker(key, worker))
        for table in self._all:
            await table.start()

    @property
    def scale(self) -> Scale | None:
        """What the controller wants; None where it never wanted anything."""
        return self._scale.get(names.SCALE)

    @property
    def is_drain_asked(self) -> bool:
        """Whether an operator has asked this host to hand over."""
        found = self._desired.get(self._desired_key)
        return found is not None and found.is_draining

    def worker(self, worker: str) -> Worker | None:
        """Presence of one worker."""
        return self._workers.get(token(worker))

    def workers(self) -> list[Worker]:
        """Presence of all."""
        return list(self._workers.items().values())

    def others(self) -> list[Host]:
        """Presence of the other hosts' agents."""
        return [host for key, host in self._hosts.items().items() if key != self._key]

    def former(self) -> Host | None:
        """What this host's own agent has told, before it began where this is asked first."""
        return self._hosts.get(self._key)

    async def close(self) -> None:
        """Stop following."""
        for table in self._all:
            await table.close()

    @property
    def _all(self) -> tuple[Table[Any], ...]:
        return self._hosts, self._workers, self._scale, self._desired
