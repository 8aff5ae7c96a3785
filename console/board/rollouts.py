"""Rollouts in progress: versions that do not get requests yet, since they are not ready or failed to load. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from signalbox.wire import rollout
from signalbox.wire.modeldocs import Model, Serving


class Pending(NamedTuple):
    """Requests by ``label`` (empty: without one) get ``old`` until ``new`` is ready. has_failed: its load has."""

    model: str
    label: str
    old: int
    new: int
    has_failed: bool


class RolledBack(NamedTuple):
    """A split of ``label`` (empty: the default) that the controller has rolled back. why: a sentence."""

    model: str
    label: str
    candidate: int
    why: str


class Unlike(NamedTuple):
    """A split whose candidate, run in shadow, does not answer as the other version does. why: a sentence."""

    model: str
    label: str
    candidate: int
    why: str


class PendingRollouts:
    """What requests do not get yet, and splits that were rolled back by themselves. Nothing is kept of most models,
    whose requests get what they shall.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[Pending, ...]] = {}
        self._rolled_back: dict[str, tuple[RolledBack, ...]] = {}
        self._uncounted: dict[str, frozenset[int]] = {}
        self._unlike: dict[str, tuple[Unlike, ...]] = {}

    def show(self, name: str, model: Model | None, record: Serving | None) -> None:
        """What the console decided about a model, and what its requests get now; None where there is neither."""
        found = tuple(_pending(model, record)) if model is not None and record is not None else ()
        if found:
            self._pending[name] = found
        else:
            self._pending.pop(name, None)
        ready = record.candidates if record is not None else ()
        splits = model.splits if model is not None else ()
        uncounted = frozenset(one.candidate for one in splits if not one.halted and one.candidate not in ready)
        if uncounted:
            self._uncounted[name] = uncounted
        else:
            self._uncounted.pop(name, None)
        unlike = tuple(Unlike(name, one.target, one.candidate, one.differs) for one in splits if one.differs)
        if unlike:
            self._unlike[name] = unlike
        else:
            self._unlike.pop(name, None)
        halted = [one for one in splits if one.halted]
        if halted:
            self._rolled_back[name] = tuple(RolledBack(name, one.target, one.candidate, one.halted) for one in halted)
        else:
            self._rolled_back.pop(name, None)

    def pending(self, name: str) -> tuple[Pending, ...]:
        """What requests of one model do not get yet."""
        return self._pending.get(name, ())

    def held_back(self) -> list[Pending]:
        """Every default and label that waits for a version whose load failed."""
        return [pending for each in self._pending.values() for pending in each if pending.has_failed]

    def uncounted(self, name: str) -> frozenset[int]:
        """Candidates of one model that get no request yet, as they are not ready on every device that serves it."""
        return self._uncounted.get(name, frozenset())

    def rolled_back(self) -> list[RolledBack]:
        """Every split that was rolled back by itself and that no operator has ended."""
        return [one for each in self._rolled_back.values() for one in each]

    def unlike(self) -> list[Unlike]:
        """Every split whose candidate, run in shadow, does not answer as the other version does."""
        return [one for each in self._unlike.values() for one in each]


def _pending(model: Model, record: Serving) -> Iterator[Pending]:
    now = rollout.served(model, record)
    for label, new in rollout.wanted(model).items():
        if now[label] != new:
            yield Pending(model.name, label, now[label], new, new in record.failed)
