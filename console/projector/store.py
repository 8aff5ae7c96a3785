"""The projector's side of the database: rows and cursor in one transaction.

Rows are written with statements of our own: an upsert that compares revisions is one statement where the
ORM would read, compare and write, and it costs a fifth of the time (``docs/console.md``). Both SQLite and
PostgreSQL take it.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from console.jobs.models import Job, JobEvent
from console.projector.fold import EventRow, Heard, JobRow, fold
from console.projector.models import Cursor
from signalbox.jobs import joblog
from signalbox.messages import State

_FIXED: Final = frozenset({"id", "size_in"})
"""Columns a later record does not know."""
_TIMES: Final = frozenset(
    {"created_at", "deadline_at", "claimed_at", "finished_at", "updated_at", "at"}
)
_JSON: Final = frozenset({"phases"})
_encode: Final = msgspec.json.Encoder().encode


class Place(NamedTuple):
    """How far the tables are. stream_created: which stream that was; another is another history."""

    seq: int
    stream_created: str


def place() -> Place:
    """The cursor as it stands."""
    cursor = Cursor.objects.filter(pk=1).first()
    return Place(cursor.seq, cursor.stream_created) if cursor else Place(0, "")


def begin(stream_created: str) -> Place:
    """Start at the beginning of a stream that is not the one read before; returns that place."""
    with transaction.atomic():
        cursor, _ = Cursor.objects.select_for_update().get_or_create(pk=1)
        # Sequences of a lost stream mean nothing now, and would clash with those of the new one.
        JobEvent.objects.all().delete()
        Job.objects.filter(revision__gt=0).update(revision=0)
        cursor.seq, cursor.stream_created, cursor.at = 0, stream_created, timezone.now()
        cursor.resyncs += 1
        cursor.save()
    return Place(0, stream_created)


def apply(heard: Sequence[Heard], upto: int) -> int:
    """Write ``heard`` and move the cursor to ``upto``; records at or before the cursor are skipped.

    Returns how many were new. Two projectors at once take turns and skip one another's records.
    """
    with transaction.atomic():
        cursor, _ = Cursor.objects.select_for_update().get_or_create(pk=1)
        fresh = [one for one in heard if one.job is not None or one.revision > cursor.seq]
        if fresh:
            write(fresh)
        if upto > cursor.seq:
            Cursor.objects.filter(pk=1).update(seq=upto, at=timezone.now())
    for one in fresh:
        told = one.record or one.job
        if told is not None:
            state = one.record.state if one.record is not None else State.QUEUED
            joblog.step("job.projected", told, state=state.value, revision=one.revision)
    return len(fresh)


def write(heard: Sequence[Heard], *, has_events: bool = True) -> None:
    """Upsert the jobs and insert the events, all or nothing. Safe to repeat."""
    rows = fold(heard)
    with transaction.atomic():
        _write(_record_statement(), JobRow._fields, rows.recorded.values())
        _write(_job_statement(), JobRow._fields, rows.accepted.values())
        if has_events:
            _write(_event_statement(), EventRow._fields, rows.events)


def _write(statement: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    convert = [(i, _converter(name)) for i, name in enumerate(columns) if name in _TIMES | _JSON]
    values = []
    for row in rows:
        cells = list(row)
        for i, to_column in convert:
            if cells[i] is not None:
                cells[i] = to_column(cells[i])
        values.append(cells)
    if values:
        with connection.cursor() as cursor:
            cursor.executemany(statement, values)


def _converter(name: str) -> Callable[[Any], Any]:
    if name in _JSON:
        return lambda value: _encode(value).decode()
    if connection.vendor == "sqlite":
        # As Django stores it, to the letter, since SQLite compares texts: UTC, without saying so.
        return lambda at: str(datetime.fromtimestamp(at, tz=UTC).replace(tzinfo=None))
    return lambda at: datetime.fromtimestamp(at, tz=UTC)


@cache
def _record_statement() -> str:
    table = Job._meta.db_table  # noqa: SLF001  Django's documented place of it
    changes = [f'"{name}" = excluded."{name}"' for name in JobRow._fields if name not in _FIXED]
    changes.append(
        f'"size_in" = CASE WHEN excluded."size_in" > 0 THEN excluded."size_in" ELSE "{table}"."size_in" END'
    )
    # The same record again is written again: a resync may have read it before its acceptance was heard.
    return (
        f"{_insert(table, JobRow._fields)} ON CONFLICT (id) DO UPDATE SET {', '.join(changes)}"
        f' WHERE excluded."revision" >= "{table}"."revision"'
    )


@cache
def _job_statement() -> str:
    insert = _insert(Job._meta.db_table, JobRow._fields)  # noqa: SLF001
    return f'{insert} ON CONFLICT (id) DO UPDATE SET "size_in" = excluded."size_in"'


@cache
def _event_statement() -> str:
    insert = _insert(JobEvent._meta.db_table, EventRow._fields)  # noqa: SLF001
    return f"{insert} ON CONFLICT (seq) DO NOTHING"


def _insert(table: str, columns: Sequence[str]) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    # Names are ours, values travel as parameters.
    return f'INSERT INTO "{table}" ({names}) VALUES ({", ".join(["%s"] * len(columns))})'  # noqa: S608
