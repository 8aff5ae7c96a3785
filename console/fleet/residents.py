"""What a worker has in its device's memory, and what leaves it next and why: the order that the worker decides by."""

from datetime import UTC, datetime
from typing import NamedTuple

from console.board.rows import LoadedVersion, WorkerRow
from signalbox.wire import eviction
from signalbox.wire.eviction import Loaded, ResidencyUse


class Resident(NamedTuple):
    """A version as a worker reports it. turn: 1 leaves next when room is needed, 0 = it stays, or is not in memory.

    used_at: its last use, or its load where there was none since; None where the worker had no room to say. why: of its
    turn, in words; empty where it is not in memory.
    """

    loaded: LoadedVersion
    turn: int
    used_at: datetime | None
    why: str

    @property
    def may_evict(self) -> bool:
        """Whether an operator may have it leave."""
        return is_resident(self.loaded) and not (self.loaded.use is not None and self.loaded.use.is_pinned)


def of(row: WorkerRow) -> list[Resident]:
    """What leaves next is first, then what stays, then what is not in memory."""
    known = [_known(each, each.use) for each in row.models if each.use is not None and is_resident(each)]
    turns = {one.key: one for one in eviction.explain(known)}
    found = []
    for each in row.models:
        said = turns.get((each.model, each.version))
        used_at = datetime.fromtimestamp(row.beat_at - each.use.idle_s, UTC) if each.use is not None else None
        why = said.why if said else "its worker had no room to say" if is_resident(each) else ""
        found.append(Resident(each, said.turn if said else 0, used_at, why))
    return sorted(found, key=lambda one: (one.turn == 0, one.turn, not is_resident(one.loaded)))


def is_resident(loaded: LoadedVersion) -> bool:
    """Whether a version is in memory, and not on its way there."""
    return loaded.state in {"ready", "spare"}


def _known(each: LoadedVersion, use: ResidencyUse) -> Loaded:
    return Loaded(
        (each.model, each.version),
        each.size_bytes,
        idle_s=use.idle_s,
        before_s=use.before_s,
        return_s=use.return_s,
        is_spare=each.state == "spare",
        is_pinned=use.is_pinned,
        is_used=use.is_used,
        is_waited=each.is_waited,
    )
