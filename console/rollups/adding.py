"""Adds records of ended jobs up. The projector writes the sums, in its transaction and turn.

A job is in the minute in which its end was stored, by the server's clock: the same whoever reads it, and when.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from django.db.models import QuerySet

from console.rollups.buckets import Histogram, bucket, merge
from console.rollups.models import HOUR_S, MINUTE_S, Minute
from signalbox.jobs.times import COMMIT, DELAY, RUN, UNKNOWN
from signalbox.wire.messages import Record, State

MINUTES_KEPT_S: Final = 3 * 86_400
"""Older ones become one row an hour."""
HOURS_KEPT_S: Final = 92 * 86_400
CHUNK: Final = 2000
"""Rows that one transaction folds or deletes."""
_SELECTED: Final = 200
"""Minutes, and models, in one statement."""
COUNTS: Final = ("succeeded", "failed", "cancelled", "expired", "retried", "bytes_in", "bytes_out", "device_ms")
DOCUMENTS: Final = ("waits", "runs", "parts")
KEY: Final = ("model", "minute", "span_s", "version", "account_id")
_NOT_WAITED: Final = frozenset({DELAY, RUN, COMMIT, UNKNOWN})


class Key(NamedTuple):
    """What a row is the sum of."""

    model: str
    minute: int
    span_s: int
    version: int
    account_id: str


@dataclass(slots=True)
class Sums:
    """The other columns of a row."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    retried: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    device_ms: float = 0.0
    waits: Histogram = field(default_factory=dict)
    runs: Histogram = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Count one ended job."""
        if record.state is State.SUCCEEDED:
            self.succeeded += 1
        else:
            name = record.state.value
            setattr(self, name, getattr(self, name) + 1)
        if record.attempt > 1:
            self.retried += 1
        self.bytes_in += record.input_bytes
        self.bytes_out += record.size_bytes
        last = spent = record.parts
        if record.attempts:
            spent = dict(spent)
            for one in record.attempts:
                _add(spent, one.parts)
        wait_ms = 0.0
        parts = self.parts
        for name, ms in spent.items():
            parts[name] = parts.get(name, 0.0) + ms
            if name not in _NOT_WAITED:
                wait_ms += ms
        if spent:
            wait = bucket(wait_ms)
            self.waits[wait] = self.waits.get(wait, 0) + 1
        if RUN in spent:
            run = bucket(spent[RUN])
            self.runs[run] = self.runs.get(run, 0) + 1
            # How many ran together is known of the last attempt alone; runs before it are in the parts.
            self.device_ms += last.get(RUN, 0.0) / (record.batch or 1)

    def merge(self, other: "Sums | Minute") -> None:
        """Add another's."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        merge(self.waits, other.waits)
        merge(self.runs, other.runs)
        _add(self.parts, other.parts)

    def row(self, key: Key) -> dict[str, Any]:
        """The row of these sums."""
        rounded = {name: round(ms, 2) for name, ms in self.parts.items()}
        return key._asdict() | {name: getattr(self, name) for name in COUNTS + DOCUMENTS} | {"parts": rounded}


Added = dict[Key, Sums]


def add_up(ended: Iterable[tuple[float, Record]], now: float) -> Added:
    """The sums of records of ended jobs, each with the UTC second when it was stored."""
    added: Added = {}
    fresh = now - MINUTES_KEPT_S
    for stored_at, record in ended:
        span_s = MINUTE_S if stored_at >= fresh else HOUR_S
        at = int(stored_at) // span_s * span_s
        key = Key(record.model, at, span_s, record.version, record.account_id)
        sums = added.get(key)
        if sums is None:
            sums = added[key] = Sums()
        sums.add(record)
    return {key: sums for key, sums in added.items() if key.minute > now - HOURS_KEPT_S}


def merge_stored(added: Added) -> None:
    """Add to the sums what their rows have already."""
    instants = sorted({key.minute for key in added})
    models = sorted({key.model for key in added})
    for start in range(0, len(instants), _SELECTED):
        for first in range(0, len(models), _SELECTED):
            # Of all accounts: a batch has most of those of its minutes.
            rows = Minute.objects.filter(
                model__in=models[first : first + _SELECTED], minute__in=instants[start : start + _SELECTED]
            )
            for row in rows.values_list(*KEY, *COUNTS, *DOCUMENTS):
                sums = added.get(Key(*row[: len(KEY)]))
                if sums is not None:
                    sums.merge(Sums(*row[len(KEY) :]))


def oldest_minutes(now: float) -> QuerySet[Minute]:
    """Some of those that are to become hours, whole minutes."""
    old = Minute.objects.filter(span_s=MINUTE_S, minute__lt=int(now - MINUTES_KEPT_S) // HOUR_S * HOUR_S)
    last = old.order_by("minute").values_list("minute", flat=True)[CHUNK - 1 : CHUNK].first()
    return old if last is None else old.filter(minute__lte=last)


def hours_of(minutes: Iterable[Minute]) -> Added:
    """The sums of their hours."""
    hours: Added = {}
    for row in minutes:
        key = Key(row.model, row.minute // HOUR_S * HOUR_S, HOUR_S, row.version, row.account_id)
        hours.setdefault(key, Sums()).merge(row)
    return hours


def too_old(now: float) -> QuerySet[Minute]:
    """Hours that go."""
    return Minute.objects.filter(span_s=HOUR_S, minute__lt=int(now - HOURS_KEPT_S))


def _add(into: dict[str, float], other: dict[str, float]) -> None:
    for name, ms in other.items():
        into[name] = into.get(name, 0.0) + ms
