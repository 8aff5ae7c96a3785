"""Says whether a job of a model's version could run now, from the catalog and from what workers report."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.wire.modeldocs import Model


class Availability(NamedTuple):
    """A version's state, as TensorFlow Serving names it, with the code and the message of its status."""

    state: str
    code: str = "OK"
    message: str = ""

    @property
    def is_available(self) -> bool:
        """Whether a job could run on it now, loaded or not."""
        return self.state == "AVAILABLE"


class Availabilities:
    """Asks the workers that are present."""

    def __init__(self, workers: LiveWorkers) -> None:
        self._workers = workers

    def of(
        self, model: Model, version: int, residencies: Mapping[tuple[str, int], Collection[str]] | None = None
    ) -> Availability:
        """A version's. residencies: as :meth:`LiveWorkers.residencies` gives them, where many are asked for."""
        if not model.is_enabled:
            return Availability("END", "UNAVAILABLE", "The model is disabled.")
        if model.replicas <= 0:
            return Availability("END", "UNAVAILABLE", "The model has no replicas.")
        if not self._workers.serving(model):
            if self._workers.may_come:  # a caller who waits until it is available would wait for ever
                return Availability("AVAILABLE")
            return Availability("START", "UNAVAILABLE", f"no worker serves {model.name}")
        if residencies is None:
            states: Collection[str] = self._workers.states_of(model.name, version)
        else:
            states = residencies.get((model.name, version), ())
        if "ready" in states or set(states) <= {"crowded"}:
            return Availability("AVAILABLE")
        if {"loading", "fetching"} & set(states):
            return Availability("LOADING")
        return Availability("END", "UNKNOWN", "The version could not be loaded.")
