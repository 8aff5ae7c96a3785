"""Figures of the health strip: GPUs by what they do, dead letters, how current the job list is, how full NATS is."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from console.board.lanes import UNREPORTED
from console.board.rows import Figure, LaneRow, WorkerRow
from signalbox.bus import storage
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.bus.storage import NEARLY_FULL
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError
from signalbox.wire.names import RECORDS, Stream

Cursor = Callable[[], Awaitable[int | None]]
"""Tells the last sequence of STATE that the projector has applied; None where it is not known."""
_WORDS: Final = {
    "computing": "busy",
    "partly": "partly in use",
    "loading": "loading",
    "restarting": "restarting its runner",
    "held": "held, idle",
    UNREPORTED: "held",
    "handover": "handed over",
    "expired": "lease ran out",
    "idle": "free",
    "unknown": "unknown",
}
STORAGE_EVERY_S: Final = 30.0
_STORAGE_UNKNOWN: Final = Figure("Storage", "unknown", "?")
LAG_SHOWN_S: Final = 10.0
"""A job list less than this behind counts as current."""


def gpus(lanes: Collection[LaneRow]) -> Figure:
    """The share of time in which GPUs are in use, over all that there are; the note says what each does."""
    doing = Counter(lane.word for lane in lanes)
    note = " · ".join(f"{doing[found]} {said}" for found, said in _WORDS.items() if doing[found])
    if not lanes or doing["unknown"]:
        return Figure("GPU time in use", "unknown", "?" if lanes else "–", note)
    share = sum(lane.use or 0.0 for lane in lanes) / len(lanes)
    return Figure("GPU time in use", "late" if doing["expired"] else "ok", f"{share:.0%}", note)


def workers(rows: Collection[WorkerRow], wanted: int | None = None) -> Figure:
    """How many workers are there, of those that were a moment ago; the note says how many of them drain.

    wanted: devices that shall have workers, None = all.
    """
    alive = [row for row in rows if row.state != "lost"]
    drained = sum(row.state in {"draining", "drained"} for row in alive)
    if wanted == 0 and len(alive) == len(rows):
        return Figure("Workers", "ok", f"{len(alive)}/{len(rows)}", "none is wanted")
    state = "failed" if drained == len(alive) else "ok" if len(alive) == len(rows) else "late"
    return Figure("Workers", state, f"{len(alive)}/{len(rows)}", f"{drained} drained" if drained else "")


async def read_health(bus: Bus, cursor: Cursor | None, now: float) -> tuple[dict[str, Figure], Figure]:
    """Dead letters by key, and the job list. What cannot be read is said to be unknown."""
    try:
        info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.DLQ}")
        dead = info["state"]["messages"]
        row = Figure("Dead letters", "late" if dead else "ok", str(dead), href="/jobs/-/dead-letters")
        return {"dead": row}, await _job_list(bus, cursor, now)
    except SignalboxError as error:
        log.warning("live.health_failed", reason=error.public_message)
        return {"dead": Figure("Dead letters", "unknown", "?")}, Figure("Job list", "unknown", "?")


async def _job_list(bus: Bus, cursor: Cursor | None, now: float) -> Figure:
    """How old the first record is that the job list does not show yet."""
    seq = await cursor() if cursor is not None else None
    if seq is None:
        return Figure("Job list", "unknown", "?", "the database does not answer")
    try:
        answer = await bus.request_json(
            f"$JS.API.STREAM.MSG.GET.{Stream.STATE}", {"seq": seq + 1, "next_by_subj": RECORDS}
        )
    except NotFound:
        return Figure("Job list", "ok", "current")
    behind_s = max(0.0, now - unix_time(answer["message"]["time"]))
    if behind_s < LAG_SHOWN_S:
        return Figure("Job list", "ok", "current")
    return Figure("Job list", "late", f"{behind_s:.0f} s behind", "does the projector run?")


class StorageFigure:
    """Asks NATS at most every :data:`STORAGE_EVERY_S`; in between the figure stays."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._row = _STORAGE_UNKNOWN

    async def read(self, bus: Bus, now: float) -> Figure:
        """The row as of ``now`` (seconds of any clock that goes on)."""
        if now >= self._asked_at + STORAGE_EVERY_S:
            self._asked_at = now
            self._row = await _storage(bus)
        return self._row


async def _storage(bus: Bus) -> Figure:
    try:
        found = await storage.read(bus)
    except SignalboxError as error:
        log.warning("live.storage_failed", reason=error.public_message)
        return _STORAGE_UNKNOWN
    if not found:
        return Figure("Storage", "ok", "no limit")
    fullest = found[0]
    if fullest.share < NEARLY_FULL:
        return Figure("Storage", "ok", f"{fullest.share:.0%}")
    return Figure("Storage", "late", f"{fullest.share:.0%}", f"{fullest.stream} is nearly full")
