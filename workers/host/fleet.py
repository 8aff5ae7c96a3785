"""The models that this worker serves: placement over presence and the catalog, without what operators paused.

All workers compute the same placement from the same tables, so that none has to ask another. A worker keeps the
last known tables and serves on when the console or NATS is away.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.jobs.delivery import generation_of
from signalbox.program import log
from signalbox.wire import rollout
from signalbox.wire.modeldocs import Limits, Model, Serving
from signalbox.wire.names import Bucket, token, untoken
from signalbox.wire.placement import homes_of, kept_models
from signalbox.wire.steering import Desired, Pin, Prefetch
from signalbox.wire.workerdocs import Worker
from workers.host.quarantine import Quarantine


class Assignment:
    """The models that placement gives to one device, kept as models and workers change.

    A change of a model costs the placement of that model; one of which workers there are costs that of every model.
    Both are due when the next question comes, so that what changes together is placed once.

    models: the catalog's documents by key, a live view. allowed: names that may be served here, empty = all.
    """

    def __init__(self, models: Mapping[str, Model], *, device: str, allowed: frozenset[str]) -> None:
        self._models = models
        self._device = device
        self._allowed = allowed
        self._homes: dict[str, tuple[str, ...]] = {}
        """Of the models of this device."""
        self._workers: dict[str, Worker] = {}
        self._due: dict[str, None] = {}
        self._is_moved = False

    def model_changed(self, key: str) -> None:
        """The model under ``key`` was published, or removed."""
        self._due[key] = None

    def worker_changed(self, key: str, worker: Worker | None) -> bool:
        """Take a worker's presence; returns whether placement reads anything in it that is new."""
        known = self._workers.get(key)
        if worker is None:
            is_new = self._workers.pop(key, None) is not None
        elif is_new := known is None or _placed_by(worker) != _placed_by(known):
            self._workers[key] = worker
        self._is_moved |= is_new
        return is_new

    def current(self) -> Mapping[str, tuple[str, ...]]:
        """The models of this device by key, and the devices that each is placed on.

        Disabled and unplaced models (no replica, no version) are left out.
        """
        if self._is_moved:
            self._is_moved = False
            self._due |= dict.fromkeys([*self._models, *self._homes])
        due, self._due = self._due, {}
        same: dict[tuple[str, ...], tuple[str, ...]] = {}  # many models are placed on few devices
        for key in due:
            homes = self._placed(key)
            if self._device in homes:
                self._homes[key] = same.setdefault(homes, homes)
            else:
                self._homes.pop(key, None)
        return self._homes

    def others(self, key: str) -> list[str]:
        """The other devices that the model under ``key`` is placed on, where it is placed on this one too."""
        return [device for device in self.current().get(key, ()) if device != self._device]

    def _placed(self, key: str) -> tuple[str, ...]:
        model = self._models.get(key)
        if model is None or not model.is_enabled or not model.versions:
            return ()
        if self._allowed and model.name not in self._allowed:
            return ()
        return homes_of(model, self._workers.values())


class AssignedModels(Mapping[str, Model]):
    """Models by name: which ones is settled when this is made; each is as it was last published, until it is removed.

    models: the catalog's documents by key, a live view.
    """

    def __init__(self, models: Mapping[str, Model], keys: Iterable[str]) -> None:
        self._models = models
        self._keys = {untoken(key): key for key in keys}

    def __getitem__(self, name: str) -> Model:
        return self._models[self._keys[name]]

    def __iter__(self) -> Iterator[str]:
        return (name for name, key in self._keys.items() if key in self._models)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _placed_by(worker: Worker) -> tuple[str, str, bool, bool, tuple[str, ...]]:
    """What placement reads of presence. The rest changes every two seconds."""
    return worker.device.id, worker.host, worker.state == "draining", worker.is_leaving, worker.serves


class FleetTables:
    """The tables behind placement, kept current.

    host: its id. describe: this worker's own presence. clock: UTC seconds. on_change: called when placement, a model,
    a desired state or the generation of consumers has changed. on_vanished: called with a worker whose presence has
    gone.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        worker: str,
        host: str,
        device: str,
        allowed: Iterable[str],
        describe: Callable[[], Worker],
        on_change: Callable[[], None],
        on_vanished: Callable[[Worker], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._on_vanished = on_vanished
        self._clock = clock
        self._generation = 0
        self._left: frozenset[str] | None = None
        """Keys of the models that were placed here when this worker was told to leave; it serves them on."""
        self._device = device
        self._host = host
        self._worker_id = worker
        self._describe = describe
        self._on_change = on_change
        self.models = Table(bus, Bucket.MODELS, Model, is_packed=True)
        self.workers = Table(bus, Bucket.WORKERS, Worker)
        self.desired = Table(bus, Bucket.DESIRED, Desired)
        self._prefetches = Table(bus, Bucket.DESIRED, Prefetch)
        self._pins = Table(bus, Bucket.DESIRED, Pin)
        self._pinned: dict[str, Pin] = {}
        """Pins in force anywhere, by key."""
        self.serving = Table(bus, Bucket.SERVING, Serving, is_packed=True)
        self._published: set[str] = set()
        self._reported: dict[str, Worker] = {}
        """Presence of the other workers, until it is told that it has gone."""
        self._holders: dict[str, str] = {}
        """Which of them holds which device."""
        self.quarantine = Quarantine(bus)
        self._assignment = Assignment(self.models.items(), device=device, allowed=frozenset(allowed))

    async def start(self) -> None:
        """Read the tables; returns when all are current."""
        self.models.on_change(lambda key, model, _revision: self._on_model(key, model))
        self.serving.on_change(lambda *_: self._on_change())
        self.desired.on_change(lambda *_: self._on_change())
        self._prefetches.on_change(
            lambda *_: self._on_change()
        )  # of one bucket, but NATS tells the tables in any order
        self._pins.on_change(lambda key, pin, _revision: self._on_pin(key, pin))
        self.workers.on_change(lambda key, worker, _revision: self._on_presence(key, worker))
        for table in self._tables:
            await table.start()
        self._published.clear()  # nothing has been tried yet
        self.assigned()  # from now on placement knows of this worker

    def find(self, name: str) -> Model | None:
        """The catalog's document of one model."""
        return self.models.get(token(name))

    def is_removed(self, name: str) -> bool:
        """Whether the console has taken a model out of the catalog. One that NATS has lost it publishes again."""
        return self.models.is_removed(token(name))

    def limits(self, name: str) -> Limits:
        """The limits of one model's jobs."""
        found = self.find(name)
        return found.limits if found is not None else Limits()

    def assigned(self) -> AssignedModels:
        """The models that this worker serves now."""
        self._assignment.worker_changed(token(self._worker_id), self._describe())
        here = self._here()
        return AssignedModels(self.models.items(), (key for key in here if not self._is_paused(key)))

    def is_assigned(self, name: str) -> bool:
        """Whether placement gives the model to this device, paused or not."""
        return token(name) in self._here()

    def targets(self, model: Model) -> list[int]:
        """Versions worth having in memory: first those that requests shall get, then those that they get now."""
        return rollout.targets(model, self.serving.get(token(model.name)))

    def prefetched(self, name: str) -> int:
        """The version of a model that is asked for ahead of need, until some instant; 0 = none is."""
        asked, model = self._prefetches.get(f"prefetch.{token(name)}"), self.find(name)
        if asked is None or model is None or asked.until <= self._clock() or not self._is_here(asked.hosts):
            return 0
        return asked.version or next(iter(self.targets(model)), 0)

    def pinned(self) -> list[tuple[str, int]]:
        """The versions that operators have pinned here, those first that were pinned first."""
        found = []
        for pin in sorted(self._pinned.values(), key=lambda pin: (pin.at, pin.model)):
            model = self.find(pin.model)
            if model is None or not self._is_here(pin.hosts) or not self.is_assigned(pin.model):
                continue
            version = pin.version or next(iter(self.targets(model)), 0)
            if any(each.version == version for each in model.versions):
                found.append((pin.model, version))
        return found

    def _is_here(self, hosts: tuple[str, ...]) -> bool:
        return not hosts or self._host in hosts

    def _on_pin(self, key: str, pin: Pin | None) -> None:
        if pin is not None and pin.is_on:
            self._pinned[key] = pin
        elif self._pinned.pop(key, None) is None:
            return  # what is in the bucket beside pins
        self._on_change()

    def is_spare(self, key: tuple[str, int]) -> bool:
        """Whether a version may leave first: its model is assigned elsewhere, or requests get other versions."""
        model = self.find(key[0])
        if model is None or not self.is_assigned(key[0]):
            return True
        return key[1] not in self.targets(model) and key[1] != self.prefetched(key[0]) and key not in self.pinned()

    def published(self) -> set[str]:
        """Models that were published since the last call of this method."""
        published, self._published = self._published, set()
        return published

    def holds(self, device: str, token: int) -> bool:
        """Whether a worker says that it holds the lease of a device under this fencing token."""
        return any(worker.token == token and worker.device.id == device for worker in self.present())

    def is_first(self, name: str) -> bool:
        """Whether this worker is the one, of those that hold a device the model is placed on, that acts for all."""
        return self._worker_id <= min(self._other_holders(name), default=self._worker_id)

    def is_alone(self, name: str) -> bool:
        """Whether no other device that the model is placed on is held; never while this worker leaves."""
        return not self.is_leaving and not self._other_holders(name)

    @property
    def is_leaving(self) -> bool:
        """Whether this worker's device is to be nobody's home any more."""
        return self._left is not None

    def leave(self) -> None:
        """Serve what is placed here now, and nothing else, wherever it is placed from now on."""
        self.assigned()
        self._left = frozenset(self._here())

    def stay(self) -> None:
        """Serve what is placed here, as before."""
        self._left = None

    def _here(self) -> Collection[str]:
        """Keys of the models that this worker serves, paused ones too."""
        return self._left if self._left is not None else self._assignment.current()

    def kept(self, worker: Worker) -> int:
        """How many models this worker has to serve until it may end. worker: its own presence."""
        others = (other for other in self.workers.items().values() if other.id != self._worker_id)
        return len(kept_models(worker, others, self._find_served)) if self.is_leaving else 0

    def _find_served(self, name: str, version: int) -> Model | None:
        model = self.find(name)
        return model if model is not None and version in self.targets(model) else None

    def served_too(self, worker: Worker, names: Iterable[str]) -> list[str]:
        """Those of the models that were placed on the device of a worker that is gone, and that this one acts for."""
        present = [*self.present(), worker]
        models = [model for name in names if (model := self.find(name)) is not None]
        return [m.name for m in models if worker.device.id in homes_of(m, present) and self.is_first(m.name)]

    def generation(self) -> int:
        """The fleet's generation of consumers."""
        reported = generation_of(self.workers.items().values())
        self._generation = max(self._generation, reported)
        return self._generation

    def next_generation(self) -> None:
        """Go on with consumers of other names, as one does not answer under its own; the fleet follows."""
        self._generation = self.generation() + 1
        log.warning("fleet.next_generation", generation=self._generation)
        self._on_change()

    def present(self) -> list[Worker]:
        """The presence of all workers; this worker's own as it is, whether or not NATS has it."""
        others = [w for w in self.workers.items().values() if w.id != self._worker_id]
        return [*others, self._describe()]

    @property
    def is_drain_asked(self) -> bool:
        """Whether an operator wants this worker to take no more work."""
        desired_state = self.desired.get(f"worker.{token(self._worker_id)}")
        return desired_state is not None and desired_state.is_draining

    async def close(self) -> None:
        """Stop following."""
        for table in self._tables:
            await table.close()

    @property
    def _tables(self) -> tuple[Any, ...]:
        return self.models, self.serving, self.workers, self.desired, self._prefetches, self._pins, self.quarantine

    def _other_holders(self, name: str) -> list[str]:
        others = self._assignment.others(token(name))
        return [self._holders[device] for device in others if device in self._holders]

    def _is_paused(self, key: str) -> bool:
        desired_state = self.desired.get(f"model.{key}")
        return desired_state is not None and desired_state.is_paused

    def _on_model(self, key: str, model: Model | None) -> None:
        if model is not None:
            self._published.add(model.name)
        self._assignment.model_changed(key)
        self._on_change()

    def _on_presence(self, key: str, worker: Worker | None) -> None:
        if key == token(self._worker_id):
            return
        known = self._reported.pop(key, None)
        if known is not None and self._holders.get(known.device.id) == known.id:
            del self._holders[known.device.id]
        if worker is not None:
            self._reported[key] = worker
            if worker.token:
                self._holders[worker.device.id] = worker.id
        is_newer = worker is not None and worker.generation > self._generation
        if self._assignment.worker_changed(key, worker) or is_newer:
            self._on_change()
        if worker is None and known is not None and known.token:
            self._on_vanished(known)
