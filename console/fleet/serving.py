"""How the fleet serves a model now, as this process receives it, beside what was decided on the model."""

from typing import Final

from console.board import conditions
from console.board.conditions import Condition
from console.board.rows import Queue
from console.catalog.models import ServedModel
from console.feed.running import running

_AWAY: Final = Condition("unknown", "not known now", "NATS cannot be reached from here")
_NO_DEVICE: Final = Condition("cold", "no device", "no worker is there: jobs are accepted and wait until one starts")


def condition(model: ServedModel, why_unpublished: str) -> Condition:
    """why_unpublished: of the last decision on it, empty once the fleet knows it."""
    if why_unpublished:
        return Condition("error", "not published", why_unpublished)
    feed = running.feed
    if model.is_enabled and model.replicas and model.serving_version is not None:
        if feed is None or feed.is_blind:
            return _AWAY
        row = _row(model.name)
        if row is None or not row.is_known:
            return Condition("pending", "being published")
        found = conditions.of(row)
        return _NO_DEVICE if found.state == "cold" and not feed.view.queues.workers() else found
    if not model.is_enabled:
        return Condition("disabled", "disabled")
    if not model.replicas:
        return Condition("none", "no replicas", "refuses new jobs")
    return Condition("none", "waits for approval", "another person approves the operations of its versions")


def ready(model: ServedModel) -> int | None:
    """On how many devices it is in memory, of ``model.replicas``; None where it is not known."""
    feed = running.feed
    row = _row(model.name)
    return row.ready if feed is not None and not feed.is_blind and row is not None else None


def _row(name: str) -> Queue | None:
    row = running.feed.view.topics.topics["queues"].rows.get(name) if running.feed is not None else None
    return row if isinstance(row, Queue) else None


def served_version(model: ServedModel) -> int | None:
    """What requests without a version get now; None where they get 503, there is none, or it is not known."""
    feed = running.feed
    if feed is None or feed.is_blind:
        return None
    row = feed.view.topics.topics["queues"].rows.get(model.name)
    if isinstance(row, Queue) and row.failed and not row.ready and not row.loading:
        return None
    pending = {move.label: move.old for move in feed.view.rollouts.pending(model.name)}
    return pending.get("", model.serving_version)


def served(model: ServedModel) -> str:
    """Which version requests get, in words: ``?`` where it is not known."""
    is_known = running.feed is not None and not running.feed.is_blind
    version = served_version(model)
    return str(version) if version is not None else "none" if is_known or model.serving_version is None else "?"


def next_version(model: ServedModel) -> str:
    """What of the version that those requests shall get, where it is another one: empty, or in words."""
    feed = running.feed
    pending = feed.view.rollouts.pending(model.name) if feed is not None and not feed.is_blind else ()
    for move in pending:
        if not move.label:
            return f"{move.new} {'does not load' if move.has_failed else 'is made ready'}"
    return ""
