"""Turns acceptances and records of jobs into rows. Pure.

Two rules make replays and disorder harmless: an event row is keyed by the record's sequence in ``STATE``, and a
job row takes a record only if that is higher than the one it shows. Acceptances and records come from two
streams and may pass one another; an acceptance never overwrites a record, and makes no event row.
A job's row tells its last record. Event rows keep what that does not: attempts that were given up, and a
cancellation that was asked for. A job that began and ended within a batch is one row. The tombstone of one that its
owner deleted takes its row and its events away.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from console.jobs.groups import fingerprint
from console.jobs.models import Job as JobModel
from console.jobs.models import JobEvent, JobTag
from signalbox.jobs.records import Found
from signalbox.wire.jobids import is_short_lived
from signalbox.wire.messages import Job, Record, State
from signalbox.wire.names import MOST_TAGS, TAG

INSTANTS: Final = frozenset(
    {"created_at", "deadline_at", "claimed_at", "finished_at", "updated_at", "not_before", "at"}
)
"""Columns in unix seconds."""
Row = dict[str, Any]
"""Values of a row of a table by column; times in unix seconds."""
EVENT_COLUMNS: Final = tuple(field.attname for field in JobEvent._meta.concrete_fields)  # noqa: SLF001
JOB_COLUMNS: Final = tuple(field.attname for field in JobModel._meta.concrete_fields)  # noqa: SLF001
TAG_COLUMNS: Final = tuple(field.attname for field in JobTag._meta.concrete_fields)  # noqa: SLF001
_OF_RECORD: Final = (
    "id",
    "model",
    "version",
    "priority",
    "account_id",
    "key_id",
    "created_at",
    "deadline_at",
    "phases",
    "parts",
    "attempt",
    "strikes",
    "failures",
    "worker",
    "gpu",
    "token",
    "batch",
    "claimed_at",
    "finished_at",
)
"""Columns that a record has under the same name."""
_of_record: Final = attrgetter(*_OF_RECORD)
_OF_EVENT: Final = tuple(name for name in EVENT_COLUMNS if name in JOB_COLUMNS)


class JobMessage(NamedTuple):
    """A record, or the one that an acceptance stands for. revision: its sequence in STATE, None for an acceptance."""

    at: float
    revision: int | None
    record: Record

    @classmethod
    def accepted(cls, job: Job, at: float) -> "JobMessage":
        """A job that has not been claimed yet."""
        return cls(at, None, Found.unclaimed(job).record)


class Rows(NamedTuple):
    """What to write. accepted: jobs of which this batch holds no record. events: by sequence, at most once each.

    deleted: ids of the jobs of which nothing is to be left.
    """

    recorded: dict[str, Row]
    accepted: dict[str, Row]
    events: list[Row]
    deleted: list[str]

    @property
    def tags(self) -> list[Row]:
        """The rows of all their tags."""
        jobs = (*self.recorded.values(), *self.accepted.values())
        return [
            {"job_id": row["id"], "tag": tag, "account_id": row["account_id"], "created_at": row["created_at"]}
            for row in jobs
            for tag in row["tags"]
        ]


def fold(received: Iterable[JobMessage]) -> Rows:
    """The rows that ``received`` makes; a job that comes to its end within a batch is written once."""
    recorded: dict[str, Row] = {}
    accepted: dict[str, Row] = {}
    events: dict[int, Row] = {}
    received = list(received)
    deleted = {one.record.id for one in received if one.record.deleted_at}
    for one in received:
        if one.record.id in deleted:
            continue
        if one.revision is None:
            accepted[one.record.id] = row_of_record(one.record, 0, one.at)
            continue
        row = row_of_record(one.record, one.revision, one.at)
        before = recorded.get(one.record.id)
        if before is None or before["revision"] < one.revision:
            recorded[one.record.id] = row
        if not one.record.state.is_terminal:
            events[one.revision] = event_of_row(row)
    for job_id in recorded.keys() & accepted.keys():
        del accepted[job_id]
    kept = [event for event in events.values() if not _is_reported(event, recorded[event["job_id"]])]
    return Rows(recorded, accepted, kept, sorted(deleted))


def _is_reported(event: Row, last: Row) -> bool:
    """Whether a later record of the same attempt tells this claim: its phases say when it was."""
    return (
        event["seq"] < last["revision"]
        and event["attempt"] == last["attempt"]
        and event["state"] == State.RUNNING
        and not event["is_cancel_asked"]
    )


def row_of_record(record: Record, revision: int, at: float) -> Row:
    """A job as its record has it."""
    code, message = (record.error.code[:40], record.error.message[:2000]) if record.error is not None else ("", "")
    return {
        **dict(zip(_OF_RECORD, _of_record(record), strict=True)),
        "signature": record.signature[:200],
        "trace": record.trace[:200],
        "redrive_of": record.redrive_of[:36],
        "tags": [tag for tag in dict.fromkeys(record.tags[:MOST_TAGS]) if TAG.match(tag)],
        "not_before": record.not_before or None,
        "is_sync": is_short_lived(record.id),
        "state": record.state.value,
        "ended_attempts": record.attempts,
        "error_code": code,
        "error_message": message,
        "error_group": fingerprint(code, message),
        "size_in": record.input_bytes,
        "size_out": record.size_bytes,
        "is_cancel_asked": record.cancel_requested,
        "revision": revision,
        "updated_at": at,
    }


def event_of_row(row: Row) -> Row:
    """The revision that a job's row shows, as a row of its history."""
    return {
        "seq": row["revision"],
        "job_id": row["id"],
        "at": row["updated_at"],
        **{name: row[name] for name in _OF_EVENT},
        "error_message": row["error_message"][:500],
    }
