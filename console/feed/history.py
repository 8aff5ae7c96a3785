"""Reads history from before this console started: lanes from EVENTS, jobs from STATE. Bounded and best effort."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from console.board.holds import Hold, log
from console.board.lanes import STRIP_S, history
from console.board.protocol import ENTRIES
from console.board.rows import StripInterval, Transition
from console.board.view import transition
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import Stored, stored_of
from signalbox.bus.transport.frames import status
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Record, decode
from signalbox.wire.names import RECORDS, Bucket, Header, Stream, event_of_key, token, untoken
from signalbox.wire.workerdocs import Lease

_RECORDS_READ: Final = 240
"""Sequences of STATE looked through; most are revisions that have been overwritten."""
_LEASES_READ: Final = 4000


async def strips(bus: Bus, now: float) -> dict[str, list[StripInterval]]:
    """The last ten minutes of every lane. Raises :class:`Unavailable`."""
    return history(await _writes(bus, event_of_key(Bucket.LEASES), now - STRIP_S))


async def holds(bus: Bus, gpu: str, since: float) -> list[Hold]:
    """The holds of one GPU since then, the newest first. Raises :class:`Unavailable`."""
    written = await _writes(bus, event_of_key(Bucket.LEASES, token(gpu)), since)
    return log((at, lease, revision) for at, _, lease, revision in written)


async def _writes(bus: Bus, subject: str, since: float) -> list[tuple[float, str, Lease | None, int]]:
    """Writes of leases, oldest first: when, of which GPU, what, and its revision in the bucket."""
    start = datetime.fromtimestamp(since, UTC).isoformat().replace("+00:00", "Z")
    stored = await _batch(bus, Stream.EVENTS, {"next_by_subj": subject, "start_time": start, "batch": _LEASES_READ})
    prefix = len(event_of_key(Bucket.LEASES, ""))
    return [
        (
            message.time,
            untoken(message.subject[prefix:]),
            lease_of(message.headers, message.data),
            _source_seq(message.headers),
        )
        for message in stored
    ]


async def transitions(bus: Bus) -> list[Transition]:
    """The latest transitions of jobs, oldest first. Raises :class:`Unavailable`."""
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}")
    last = info["state"]["last_seq"]
    first = max(info["state"]["first_seq"], last - _RECORDS_READ, 1)
    if last < first:
        return []
    request = {"seq": first, "next_by_subj": RECORDS, "batch": _RECORDS_READ + 1}
    stored = await _batch(bus, Stream.STATE, request)
    found = [entry for message in stored if (entry := _entry(message))]
    return found[-ENTRIES:]


def lease_of(headers: Mapping[str, str], data: bytes) -> Lease | None:
    """A lease as written, or None for a delete or an expiry marker. Raises :class:`msgspec.MsgspecError`."""
    if not data or is_removal(headers):
        return None
    return decode(Lease, data)


def _source_seq(headers: Mapping[str, str]) -> int:
    """Sequence in the bucket of an event that ``EVENTS`` sources from it: its fencing token."""
    parts = headers.get("Nats-Stream-Source", "").split(" ")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


async def _batch(bus: Bus, stream: Stream, request: Mapping[str, object]) -> list[Stored]:
    found: list[Stored] = []
    subject = f"$JS.API.DIRECT.GET.{stream}"
    head, _ = await bus.collect(subject, request, lambda head, body: found.append(stored_of(head, body)))
    return found if status(head) in {204, 404} else []


def _entry(message: Stored) -> Transition | None:
    try:
        record = decode(Record, message.headers[Header.RECORD])
    except (KeyError, msgspec.MsgspecError):
        return None
    return transition(record, message.time) if not record.deleted_at else None
