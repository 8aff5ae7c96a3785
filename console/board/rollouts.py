"""Rollouts in progress: versions that do not get requests yet, since they are not ready or failed to load. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from signalbox.wire import rollout
from signalbox.wire.messages import Model, Serving


class Pending(NamedTuple):
    """Requests by ``label`` (empty: without one) get ``old`` until ``new`` is ready. has_failed: its load has."""

    model: str
    label: str
    old: int
    new: int
    has_failed: bool


class PendingRollouts:
    """What the console published, and what gateways record that requests get."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._serving: dict[str, Serving] = {}

    def model(self, name: str, document: Model | None) -> None:
        """What the console decided about a model; None when it was removed."""
        if document is None:
            self._models.pop(name, None)
        else:
            self._models[name] = document

    def serving(self, name: str, record: Serving | None) -> None:
        """What requests of a model get now."""
        if record is None:
            self._serving.pop(name, None)
        else:
            self._serving[name] = record

    def pending(self, name: str) -> Iterator[Pending]:
        """What requests of one model do not get yet."""
        model, record = self._models.get(name), self._serving.get(name)
        if model is None or record is None:
            return
        now = rollout.served(model, record)
        for label, new in rollout.wanted(model).items():
            if now[label] != new:
                yield Pending(name, label, now[label], new, new in record.failed)

    def held_back(self) -> Iterator[Pending]:
        """Every default and label that waits for a version whose load failed."""
        for name, record in self._serving.items():
            if record.failed:
                yield from (pending for pending in self.pending(name) if pending.has_failed)
