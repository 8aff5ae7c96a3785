"""How queues of the queue service stand: in a word, and the alarms about them. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from console.board.causes import grouped, hint
from console.board.conditions import Condition
from console.board.rows import Alarm, Row
from signalbox.wire.queuenames import SIDES, Side
from signalbox.wire.queues import Queue, QueueState, SideState, backlog


class QueueStanding(Row, frozen=True):
    """at: when the outbound program last told of the queue, UTC seconds: a page that shows it looks again."""

    at: float


def side_of(state: QueueState | None, side: Side) -> SideState:
    """How a side stands; empty where nothing is known."""
    if state is None:
        return SideState()
    return state.sink if side == "sink" else state.source


def is_full(queue: Queue, side: Side, state: QueueState | None) -> bool:
    """Whether a side takes no further item as it is; one that drops its oldest always does."""
    bounds = queue.sink if side == "sink" else queue.source
    return not bounds.auto_evict and side_of(state, side).length >= queue.room(side).length


def takes_results(queue: Queue, state: QueueState | None) -> bool:
    """Whether its services can go on: their results have a place."""
    sink = side_of(state, "sink")
    return not (is_full(queue, "sink", state) or sink.is_ended or sink.is_away)


def waiting(queues: Mapping[str, Queue], states: Mapping[str, QueueState]) -> dict[str, int]:
    """Items that wait for each model and could be done. By the same keys."""
    return backlog(_going(queues, states))


def oldest(queues: Mapping[str, Queue], states: Mapping[str, QueueState]) -> dict[str, float]:
    """When the first item was put, UTC seconds, of those that are not done in the queues that :func:`waiting` counts
    for each model. Not of a queue that consumers of other groups read too: it keeps what only they have not committed.
    """
    found: dict[str, float] = {}
    for queue, state in _going(queues, states):
        if state is None or not state.source.oldest_at or len(state.source.groups) != 1:
            continue
        for model in backlog([(queue, state)]):
            found[model] = min(found.get(model, math.inf), state.source.oldest_at)
    return found


def _going(queues: Mapping[str, Queue], states: Mapping[str, QueueState]) -> Iterator[tuple[Queue, QueueState | None]]:
    """The queues whose items could be done: while a source gives or a sink takes nothing, no worker can do anything for
    its queue, however many there are."""
    for key, queue in queues.items():
        state = states.get(key)
        if takes_results(queue, state) and not side_of(state, "source").is_away:
            yield queue, state


def condition(queue: Queue, state: QueueState | None) -> Condition:
    """How it stands, in a word of the stylesheet and in words for people."""
    if state is None or state.state == "creating":
        return Condition("pending", "being made", "The outbound program makes its streams.")
    if state.state == "failed":
        return Condition("failed", "failed", state.why)
    away = [side for side in SIDES if side_of(state, side).is_away]
    if away:
        why = "has no leader in NATS: a node is away, or another is being elected. Until then nothing is put or taken"
        return Condition("late", f"{' and '.join(away)} away", f"Its {' and '.join(away)} {why}.")
    full = [side for side in SIDES if is_full(queue, side, state)]
    if full:
        is_or_are = "is" if len(full) == 1 else "are"
        so = _stops(queue, full, "puts are refused")
        return Condition("late", f"{' and '.join(full)} full", f"Its {' and '.join(full)} {is_or_are} full: {so}.")
    ended = [side for side in SIDES if side_of(state, side).is_ended]
    if ended:
        so = _stops(queue, ended, "it takes no further item there")
        return Condition("drained", f"{' and '.join(ended)} ended", f"{so[0].upper()}{so[1:]} until it is reopened.")
    return Condition("ok", "running")


def _stops(queue: Queue, sides: Sequence[Side], puts: str) -> str:
    """What comes of sides that take nothing. puts: of those into them."""
    return f"{puts}, and its services take no items" if queue.services and "sink" in sides else puts


def alarms(queues: Mapping[str, Queue], states: Mapping[str, QueueState]) -> dict[str, Alarm]:
    """One for each queue that could not be made, and each with a full side or one that is away; many as one."""
    found = {}
    for key, queue in queues.items():
        said = condition(queue, states.get(key))
        if said.state == "failed":
            text = f"Queue {queue.name} could not be made as it is set: {said.why}"
            found[f"queue-failed:{key}"] = Alarm("error", text, href=f"/queues/{queue.name}", what=queue.name)
        elif said.state == "late":
            text = f"Queue {queue.name}: {said.why[0].lower()}{said.why[1:]}"
            kind = "away" if any(side_of(states.get(key), side).is_away for side in SIDES) else "full"
            found[f"queue-{kind}:{key}"] = Alarm("warning", text, href=f"/queues/{queue.name}", what=queue.name)
    return grouped({key: replace(alarm, hint=hint(key)) for key, alarm in found.items()})
