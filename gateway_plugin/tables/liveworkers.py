"""The workers that would run a job, from their presence: for texts and estimates, never for decisions."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from signalbox.bus.table import Table
from signalbox.jobs import delivery, starts, waiting
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import token
from signalbox.wire.scaling import Host
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker


class LiveWorkers:
    """Answers questions about workers from their presence. hosts: None where nobody asks which workers come."""

    def __init__(self, workers: Table[Worker], desired: Table[Desired], hosts: Table[Host] | None = None) -> None:
        self._workers = workers
        self._desired = desired
        self._hosts = hosts

    @property
    def present(self) -> Iterable[Worker]:
        """Every worker that there is."""
        return self._workers.items().values()

    @property
    def hosts(self) -> Collection[Host]:
        """Every host whose agent starts workers."""
        return list(self._hosts.items().values()) if self._hosts is not None else ()

    @property
    def may_come(self) -> bool:
        """Whether there is no worker, and a host starts one as soon as there is a job."""
        return next(iter(self.present), None) is None and starts.may_come(self.hosts)

    @property
    def generation(self) -> int:
        """Of the fleet's consumers, see :mod:`signalbox.jobs.delivery`."""
        return delivery.generation_of(self.present)

    def serving(self, model: Model) -> list[Worker]:
        """Workers at the model's homes that are not leaving."""
        return waiting.serving(model, self.present)

    def is_paused(self, model: str) -> bool:
        """Whether an operator has paused new runs of a model."""
        found = self._desired.get(f"model.{token(model)}")
        return found is not None and found.is_paused

    def states_of(self, model: str, version: int) -> set[str]:
        """Residency states (``loading``, ``ready``, ``failed``) of a version over all workers it is placed on."""
        return {
            resident.state
            for worker in self.present
            for resident in worker.models
            if (resident.model, resident.version) == (model, version) and resident.state != "spare"
        }

    def residencies(self) -> Mapping[tuple[str, int], set[str]]:
        """:meth:`states_of` every model and version that some worker names."""
        found: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for worker in self.present:
            for resident in worker.models:
                if resident.state != "spare":
                    found[resident.model, resident.version].add(resident.state)
        return found
