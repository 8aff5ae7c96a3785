"""Versions that requests shall get and do not, because they could not be loaded. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from signalbox import rollout
from signalbox.messages import Model, Serving


class HeldBack(NamedTuple):
    """Requests of ``model`` by ``label`` (empty: without one) stay with ``old``, since ``new`` does not load."""

    model: str
    label: str
    old: int
    new: int


class Rollouts:
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

    def held_back(self) -> Iterator[HeldBack]:
        """Every default and label that waits for a version whose load failed."""
        for name, record in self._serving.items():
            model = self._models.get(name)
            if not record.failed or model is None:
                continue
            now = rollout.served(model, record)
            for label, new in rollout.wanted(model).items():
                if new in record.failed and now[label] != new:
                    yield HeldBack(name, label, now[label], new)
