"""What is left when a run has ended: every record, and what the queue still holds."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from signalbox.bus.client import Bus
from signalbox.wire import messages, names, tensors
from signalbox.wire.messages import Record
from signalbox.wire.names import Header
from verification.chaos.evidence.journal import Entry, Journal
from verification.chaos.evidence.recorder import facts_of


async def snapshot(
    bus: Bus, path: Path, values: Mapping[str, Any], *, after: int = 0, kept: Mapping[str, Entry] = {}
) -> None:
    """``final.jsonl``: every record with its result, and the open ends of the queue.

    values: what is added to the last line. after: as of :func:`standing`. kept: what that said earlier; of these who
    had ended and are there no more were thrown away in time. Raises :class:`Unavailable`.
    """
    found = await standing(bus, after=after)
    ended = {job: e for job, e in kept.items() if messages.State(e["state"]).is_terminal}
    journal = Journal(path)
    for entry in {**ended, **found}.values():
        journal.note(**entry)
    journal.note(end=True, **values)
    journal.close()


async def standing(bus: Bus, *, after: int = 0) -> dict[str, Entry]:
    """Every record by job. after: sequence of the last that is not the run's. Raises :class:`Unavailable`."""
    found = {}
    for stored in await bus.list_latest(names.Stream.STATE, [names.RECORDS]):
        if stored.seq > after:
            record = messages.decode(Record, stored.headers[Header.RECORD])
            entry = {"seq": stored.seq, "y": _value_of(record, stored.data), **facts_of(record)}
            found[record.id] = entry
    return found


def _value_of(record: Record, frame: bytes) -> float | None:
    from tests.rigs.submit import read_floats

    if record.state is not messages.State.SUCCEEDED or record.ref is not None:
        return None
    found = next((t for t in tensors.decode(frame) if t.name == "y"), None)  # others' models too
    return None if found is None else read_floats(frame)[0]


async def jobs_left(bus: Bus) -> dict[str, int]:
    """Jobs in the queue by model and priority: after the end of each its message is removed. Raises Unavailable."""
    ask = {"subjects_filter": "jobs.>"}
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{names.Stream.JOBS}", ask)
    subjects: dict[str, int] = info["state"].get("subjects") or {}
    return Counter(" ".join(names.class_of(subject)) for subject in subjects)
