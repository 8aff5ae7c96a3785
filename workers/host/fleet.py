"""The models that this worker serves: placement over presence and the catalog, without what operators paused.

All workers compute the same placement from the same tables, so that none has to ask another. A worker keeps the
last known tables and serves on when the console or NATS is away.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire import rollout
from signalbox.wire.messages import Desired, Limits, Model, Serving, Worker
from signalbox.wire.names import Bucket, token
from signalbox.wire.placement import homes_of
from workers.host.quarantine import Quarantine


def assigned_models(
    models: Iterable[Model],
    workers: Iterable[Worker],
    desired: Mapping[str, Desired],
    *,
    device: str,
    allowed: frozenset[str],
) -> dict[str, Model]:
    """The models that placement assigns to ``device``, by name.

    allowed: names this worker may serve, empty = all. Disabled, paused and unplaced models (no
    replica, no version) are left out.
    """
    present = list(workers)
    assigned: dict[str, Model] = {}
    for model in models:
        if not model.is_enabled or not model.versions or (allowed and model.name not in allowed):
            continue
        desired_state = desired.get(f"model.{token(model.name)}")
        if desired_state is not None and desired_state.is_paused:
            continue
        if device in homes_of(model, present):
            assigned[model.name] = model
    return assigned


class FleetTables:
    """The tables behind placement, kept current.

    describe: this worker's own presence. on_change: called when placement, a model or a desired state has changed.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        worker: str,
        device: str,
        allowed: Iterable[str],
        describe: Callable[[], Worker],
        on_change: Callable[[], None],
    ) -> None:
        self._device = device
        self._worker_id = worker
        self._describe = describe
        self._allowed = frozenset(allowed)
        self._on_change = on_change
        self.models = Table(bus, Bucket.MODELS, Model)
        self.workers = Table(bus, Bucket.WORKERS, Worker)
        self.desired = Table(bus, Bucket.DESIRED, Desired)
        self.serving = Table(bus, Bucket.SERVING, Serving)
        self._published: set[str] = set()
        self.quarantine = Quarantine(bus)
        self._assigned: frozenset[str] = frozenset()
        self._members: frozenset[tuple[str, str, str]] = frozenset()

    async def start(self) -> None:
        """Read the tables; returns when all are current."""
        self.models.on_change(lambda _key, model, _revision: self._on_model(model))
        self.serving.on_change(lambda *_: self._on_change())
        self.desired.on_change(lambda *_: self._on_change())
        self.workers.on_change(lambda *_: self._on_presence())
        for table in self._tables:
            await table.start()

    def find(self, name: str) -> Model | None:
        """The catalog's document of one model."""
        return self.models.get(token(name))

    def limits(self, name: str) -> Limits:
        """The limits of one model's jobs."""
        found = self.find(name)
        return found.limits if found is not None else Limits()

    def assigned(self) -> dict[str, Model]:
        """The models that this worker serves now."""
        return assigned_models(
            self.models.items().values(),
            self.present(),
            self.desired.items(),
            device=self._device,
            allowed=self._allowed,
        )

    def is_assigned(self, name: str) -> bool:
        """Whether placement gives the model to this device, paused or not, as of the last change of placement."""
        return name in self._assigned

    def targets(self, model: Model) -> list[int]:
        """Versions worth having in memory: first those that requests shall get, then those that they get now."""
        return rollout.targets(model, self.serving.get(token(model.name)))

    def is_spare(self, key: tuple[str, int]) -> bool:
        """Whether a version may leave first: its model is assigned elsewhere, or requests get other versions."""
        model = self.find(key[0])
        return model is None or not self.is_assigned(key[0]) or key[1] not in self.targets(model)

    def published(self) -> set[str]:
        """Models that were published since the last call of this method."""
        published, self._published = self._published, set()
        return published

    def is_only_assigned(self, model: Model) -> bool:
        """Whether no worker of another device pulls the model."""
        return homes_of(model, self.present()) == (self._device,)

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
        return self.models, self.serving, self.workers, self.desired, self.quarantine

    def _on_model(self, model: Model | None) -> None:
        if model is not None:
            self._published.add(model.name)
        self._changed()

    def _on_presence(self) -> None:
        # Each worker writes every two seconds; only which workers there are, and on which devices, matters.
        members = frozenset((worker.id, worker.device.id, worker.state) for worker in self.workers.items().values())
        if members != self._members:
            self._members = members
            self._changed()

    def _changed(self) -> None:
        """Compute placement anew, as it may have changed."""
        models = self.models.items().values()
        here = assigned_models(models, self.present(), {}, device=self._device, allowed=self._allowed)
        self._assigned = frozenset(here)
        self._on_change()
