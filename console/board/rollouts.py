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
    """What requests do not get yet. Nothing is kept of the models, nearly all, whose requests get what they shall."""

    def __init__(self) -> None:
        self._pending: dict[str, tuple[Pending, ...]] = {}

    def show(self, name: str, model: Model | None, record: Serving | None) -> None:
        """What the console decided about a model, and what its requests get now; None where there is neither."""
        found = tuple(_pending(model, record)) if model is not None and record is not None else ()
        if found:
            self._pending[name] = found
        else:
            self._pending.pop(name, None)

    def pending(self, name: str) -> tuple[Pending, ...]:
        """What requests of one model do not get yet."""
        return self._pending.get(name, ())

    def held_back(self) -> list[Pending]:
        """Every default and label that waits for a version whose load failed."""
        return [pending for each in self._pending.values() for pending in each if pending.has_failed]


def _pending(model: Model, record: Serving) -> Iterator[Pending]:
    now = rollout.served(model, record)
    for label, new in rollout.wanted(model).items():
        if now[label] != new:
            yield Pending(model.name, label, now[label], new, new in record.failed)
