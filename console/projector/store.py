"""The projector's side of the database: rows and cursor in one transaction.

Rows are written with statements of our own: an upsert that compares revisions is one statement where the
ORM would read, compare and write, and it costs a fifth of the time (``docs/console.md``). Both SQLite and
PostgreSQL take it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from console.jobs import retention
from console.jobs.fold import EVENT_COLUMNS, INSTANTS, JOB_COLUMNS, TAG_COLUMNS, JobMessage, Row, fold
from console.jobs.models import Job, JobEvent, JobTag
from console.projector.models import Cursor
from signalbox.jobs import joblog
from signalbox.program import log

_JSON: Final = frozenset({"phases", "parts", "ended_attempts", "tags"})
_CHUNK: Final = 500
"""Ids in one statement."""
_encode: Final = msgspec.json.Encoder().encode


class Statement(NamedTuple):
    """One insertion in two forms: of a row's values, which SQLite prepares once, or of all rows as one document."""

    of_values: str
    of_documents: str


def read_cursor() -> Cursor:
    """The cursor as the database has it; at the beginning where it has none."""
    return Cursor.objects.filter(pk=1).first() or Cursor(pk=1)


def begin(stream_created: str) -> Cursor:
    """Start at the beginning of a STATE that is not the one read before; returns it."""
    with transaction.atomic():
        cursor, _ = Cursor.objects.select_for_update().get_or_create(pk=1)
        # Sequences of a lost stream mean nothing now, and would clash with those of the new one.
        JobEvent.objects.all().delete()
        Job.objects.filter(revision__gt=0).update(revision=0)
        cursor.seq, cursor.stream_created, cursor.at = 0, stream_created, timezone.now()
        cursor.resyncs += 1
        cursor.save()
    return cursor


def begin_queue(queue_created: str) -> Cursor:
    """Start at the beginning of a JOBS that is not the one read before; returns it."""
    with transaction.atomic():
        cursor, _ = Cursor.objects.select_for_update().get_or_create(pk=1)
        cursor.queue_seq, cursor.queue_created = 0, queue_created
        cursor.save()
    return cursor


def apply(received: Sequence[JobMessage], upto: int, queue_upto: int = 0) -> int:
    """Write ``received`` and move the cursor up to these sequences of STATE and JOBS.

    Records at or before the cursor are skipped.

    Returns how many were new. Two projectors at once take turns and skip one another's records.
    """
    with transaction.atomic():
        cursor, _ = Cursor.objects.select_for_update().get_or_create(pk=1)
        fresh = [one for one in received if one.revision is None or one.revision > cursor.seq]
        if fresh:
            write(fresh)
        if upto > cursor.seq or queue_upto > cursor.queue_seq:
            Cursor.objects.filter(pk=1).update(
                seq=max(upto, cursor.seq), queue_seq=max(queue_upto, cursor.queue_seq), at=timezone.now()
            )
    for one in fresh if log.is_debug else ():
        joblog.step("job.projected", one.record, state=one.record.state.value, revision=one.revision or 0)
    return len(fresh)


def write(received: Sequence[JobMessage], *, has_events: bool = True) -> None:
    """Upsert the jobs and insert the events, delete what was deleted, all or nothing. Safe to repeat."""
    rows = fold(received)
    with transaction.atomic():
        _write(_record_statement(), JOB_COLUMNS, rows.recorded.values())
        _write(_job_statement(), JOB_COLUMNS, rows.accepted.values())
        _write(_tag_statement(), TAG_COLUMNS, rows.tags)
        if has_events:
            _write(_event_statement(), EVENT_COLUMNS, rows.events)
        for start in range(0, len(rows.deleted), _CHUNK):
            retention.delete(rows.deleted[start : start + _CHUNK])


def _write(statement: Statement, columns: Sequence[str], rows: Collection[Row]) -> None:
    """Every row with one statement. Each is there once: PostgreSQL changes no row twice in one statement."""
    if not rows:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(statement.of_documents, [_documents(columns, rows)])
        else:
            cursor.executemany(statement.of_values, _values(columns, rows))


def _documents(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """The rows as a JSON array, which the server takes apart: no text is put together value by value here."""
    times = [name for name in columns if name in INSTANTS]
    return _encode([_with(row, times, _utc) for row in rows]).decode()


def _values(columns: Sequence[str], rows: Iterable[Row]) -> list[list[Any]]:
    times = [name for name in columns if name in INSTANTS]
    documents = [name for name in columns if name in _JSON]
    converted = (_with(_with(row, times, sqlite_time), documents, _text) for row in rows)
    return [[row[name] for name in columns] for row in converted]


def _with(row: Row, columns: Iterable[str], convert: Callable[[Any], Any]) -> Row:
    return row | {name: convert(row[name]) for name in columns if row[name] is not None}


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC)


def sqlite_time(at: float) -> str:
    """An instant as Django stores it, to the letter, since SQLite compares texts: UTC, without saying so."""
    second, micros = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_second(second)}.{micros:06d}" if micros else _second(second)


@lru_cache(maxsize=256)
def _second(second: int) -> str:
    # Jobs of a batch share their seconds; formatting five such texts was a fifth of a row's cost.
    return str(datetime.fromtimestamp(second, tz=UTC).replace(tzinfo=None))


def _text(value: Any) -> str:
    return _encode(value).decode()


@cache
def _record_statement() -> Statement:
    table = Job._meta.db_table  # noqa: SLF001  Django's documented place of it
    changes = [f'"{name}" = excluded."{name}"' for name in JOB_COLUMNS if name != "id"]
    # The same record again is written again: a resync may have read it before its acceptance was received.
    return _insert(
        table,
        JOB_COLUMNS,
        f'ON CONFLICT (id) DO UPDATE SET {", ".join(changes)} WHERE excluded."revision" >= "{table}"."revision"',
    )


@cache
def _job_statement() -> Statement:
    return _insert(Job._meta.db_table, JOB_COLUMNS, "ON CONFLICT (id) DO NOTHING")  # noqa: SLF001


@cache
def _tag_statement() -> Statement:
    return _insert(JobTag._meta.db_table, TAG_COLUMNS, "ON CONFLICT (job_id, tag) DO NOTHING")  # noqa: SLF001


@cache
def _event_statement() -> Statement:
    return _insert(JobEvent._meta.db_table, EVENT_COLUMNS, "ON CONFLICT (seq) DO NOTHING")  # noqa: SLF001


def _insert(table: str, columns: Sequence[str], conflict: str) -> Statement:
    names = ", ".join(f'"{name}"' for name in columns)
    # Names are ours, values travel as parameters. WHERE true: without it SQL reads ON CONFLICT as a join's ON.
    into = f'INSERT INTO "{table}" ({names})'
    source = f'SELECT {names} FROM json_populate_recordset(NULL::"{table}", %s)'  # noqa: S608
    return Statement(
        of_values=f"{into} VALUES ({', '.join(['%s'] * len(columns))}) {conflict}",
        of_documents=f"{into} {source} WHERE true {conflict}",
    )
