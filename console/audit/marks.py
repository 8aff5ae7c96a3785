"""Notes the audit's head outside the database at intervals: a log that was cut or rewritten matches no note.

The notes are in the stream AUDIT, from which no program deletes and which none purges. See ADR 0134.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from channels.db import database_sync_to_async

from console.audit.models import AuditEntry, AuditHead
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import Stored, stored_of
from signalbox.bus.transport.frames import status
from signalbox.program import log, metrics
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire import messages
from signalbox.wire.messages import AuditMark
from signalbox.wire.names import AUDIT_HEAD, Stream

_BATCH: Final = 1000
_MARKED: Final = metrics.counter("console_audit_marks", "Heads of the audit noted in NATS, or not.", "result")


async def keep_marked(bus: Bus, every_s: float) -> None:
    """Note the head at intervals, until cancelled. A round without NATS or database is left out."""
    while True:
        try:
            await mark(bus)
        except SignalboxError as error:
            _MARKED.labels("failed").inc()
            log.warning("audit.mark_failed", reason=error.public_message)
        except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
            _MARKED.labels("failed").inc()
            log.exception("audit.mark_failed")
        await asyncio.sleep(every_s)


async def mark(bus: Bus) -> bool:
    """Note the head, unless the newest note is of it. Returns whether it was noted now."""
    head = await database_sync_to_async(AuditHead.objects.filter(pk=1).first)()
    if head is None:
        return False
    noted = messages.encode(AuditMark(number=head.number, digest=head.digest))
    last = await bus.leader_get(Stream.AUDIT, AUDIT_HEAD)
    if last is not None and last.data == noted:
        return False
    await bus.write(AUDIT_HEAD, noted, msg_id=f"{head.number}.{head.digest}")
    _MARKED.labels("done").inc()
    return True


async def read(bus: Bus) -> list[AuditMark]:
    """Every note, oldest first. Raises :class:`Unavailable`."""
    found: list[AuditMark] = []
    start = 1
    while True:
        page: list[Stored] = []

        def add(head: bytes, body: bytes, page: list[Stored] = page) -> None:
            page.append(stored_of(head, body))

        asked = {"seq": start, "next_by_subj": AUDIT_HEAD, "batch": _BATCH}
        head, _ = await bus.collect(f"$JS.API.DIRECT.GET.{Stream.AUDIT}", asked, add)
        if status(head) not in {204, 404}:
            raise Unavailable("The notes of the audit's head cannot be read.")
        found += [messages.decode(AuditMark, stored.data) for stored in page]
        if len(page) < _BATCH:
            return found
        start = page[-1].seq + 1


def unmatched(marks: Iterable[AuditMark]) -> Iterator[str]:
    """Each note whose row is missing or differs, in words."""
    noted = list(marks)
    for start in range(0, len(noted), _BATCH):
        part = noted[start : start + _BATCH]
        rows = AuditEntry.objects.filter(number__in={one.number for one in part})
        digests: dict[int, str] = dict(rows.values_list("number", "digest"))
        for one in part:
            if one.number not in digests:
                yield f"{one.number}: was the head once, and is gone"
            elif digests[one.number] != one.digest:
                yield f"{one.number}: was the head once with another digest"
