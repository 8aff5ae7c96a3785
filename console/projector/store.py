"""The projector's side of the database: rows and cursor in one transaction.

Rows are written with statements of our own: an upsert that compares revisions is one statement where the
ORM would read, compare and write, and it costs a fifth of the time (``docs/console.md``). Both SQLite and
PostgreSQL take it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
from console.rollups import adding
from console.rollups.models import Minute
from signalbox.jobs import joblog
from signalbox.program import log
from signalbox.wire.messages import Record, State

_JSON: Final = frozenset({"phases", "parts", "ended_attempts", "tags", "waits", "runs"})
_MINUTE_COLUMNS: Final = (*adding.KEY, *adding.COUNTS, *adding.DOCUMENTS)
_CHUNK: Final = 500
"""Ids in one statement."""
_ENDED: Final = tuple(state.value for state in State if state.is_terminal)
_clock: Final = time.time
_encode: Final = msgspec.json.Encoder().encode


class Statement(NamedTuple):
    """One insertion in two forms: of a row's values, which SQLite prepares once, or of all rows as one document."""

    of_values: str
    of_documents: str


def read_cursor() -> Cursor:
    """The cursor as the database has it; at the beginning where it has none."""
    return Cursor.objects.filter(pk=1).first() or Cursor(pk=1)


def begin(stream_created: str, last: int) -> Cursor:
    """Start at the beginning of a STATE that is not the one read before; returns it. last: its last sequence."""
    with transaction.atomic():
        cursor, _ = Cursor.objects.select_for_update().get_or_create(pk=1)
        oldest = Job.objects.filter(state__in=_ENDED).order_by("created_at").values_list("created_at", flat=True)
        cursor.again_since = oldest.first()
        cursor.again_seq = last if cursor.again_since is not None else 0
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
            added = adding.add_up(_ended(fresh, cursor), _clock())
            write(fresh)
            _add(added)
        if upto > cursor.seq or queue_upto > cursor.queue_seq:
            Cursor.objects.filter(pk=1).update(
                seq=max(upto, cursor.seq), queue_seq=max(queue_upto, cursor.queue_seq), at=timezone.now()
            )
    for one in fresh if log.is_debug else ():
        joblog.step("job.projected", one.record, state=one.record.state.value, revision=one.revision or 0)
    return len(fresh)


def tidy() -> int:
    """Make hours of old minutes of figures, and delete the oldest, some of both; returns how many rows went."""
    with transaction.atomic():
        Cursor.objects.select_for_update().get_or_create(pk=1)
        now = _clock()
        minutes = adding.oldest_minutes(now)
        _add(adding.hours_of(minutes))
        folded, _ = minutes.delete()
        gone, _ = adding.too_old(now).delete()
    return folded + gone


def _add(added: adding.Added) -> None:
    if added:
        adding.merge_stored(added)
        _write(_minute_statement(), _MINUTE_COLUMNS, [sums.row(key) for key, sums in added.items()])


def _ended(fresh: Iterable[JobMessage], cursor: Cursor) -> Iterator[tuple[float, Record]]:
    """The ends among them that were not added up before.

    A job has one, and its tombstone is none; the cursor lets none of a STATE pass twice. Of another STATE, which may
    have ends of the one before, those are left out of which the row says so, or of which it is older than all rows, so
    that it may have been deleted.
    """
    ends = [(one, one.revision) for one in fresh if one.revision is not None and one.record.state.is_terminal]
    again = {one.record.id for one, revision in ends if revision <= cursor.again_seq}
    known = _known_ends(list(again)) if again else ()
    for one, _ in ends:
        record = one.record
        if record.deleted_at or record.id in known:
            continue
        if record.id not in again or cursor.again_since is None or record.created_at >= cursor.again_since.timestamp():
            yield one.at, record


def _known_ends(ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(ids), _CHUNK):
        rows = Job.objects.filter(pk__in=ids[start : start + _CHUNK], state__in=_ENDED)
        found.update(rows.values_list("pk", flat=True))
    return found


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
def _minute_statement() -> Statement:
    changes = [f'"{name}" = excluded."{name}"' for name in adding.COUNTS + adding.DOCUMENTS]
    key = ", ".join(adding.KEY)
    return _insert(Minute._meta.db_table, _MINUTE_COLUMNS, f"ON CONFLICT ({key}) DO UPDATE SET {', '.join(changes)}")  # noqa: SLF001


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
