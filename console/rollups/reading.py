"""What the figures say: of a model's versions, and of accounts."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import F, FloatField, Sum, Value
from django.db.models.functions import Cast, Mod

from console.rollups.adding import Sums
from console.rollups.buckets import Histogram, percentiles
from console.rollups.models import MINUTE_S, Minute
from signalbox.jobs.times import PARTS
from signalbox.program.errors import InvalidRequest

MOST_STEPS: Final = 1000
_JOBS: Final = F("succeeded") + F("failed") + F("cancelled") + F("expired")
_SECOND: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Point:
    """Jobs that ended in a step. at: when it began."""

    at: datetime
    jobs: int
    failed: int


@dataclass(frozen=True, slots=True)
class VersionFigures:
    """One version of a model, over a time. Times are milliseconds, None where no job had one.

    points: every step of the time, those without a job too.
    """

    version: int
    seconds: int
    sums: Sums
    points: list[Point] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        """How many ended."""
        return self.sums.succeeded + self.sums.failed + self.sums.cancelled + self.sums.expired

    @property
    def per_s(self) -> float:
        """How many ended in a second."""
        return self.jobs / self.seconds

    @property
    def failed_share(self) -> float | None:
        """Of one; of those that were not cancelled."""
        judged = self.jobs - self.sums.cancelled
        return self.sums.failed / judged if judged else None

    @property
    def device_s(self) -> float:
        """Seconds of a device."""
        return self.sums.device_ms / _SECOND

    @property
    def wait_ms(self) -> list[float | None]:
        """p50 and p99."""
        return _both(self.sums.waits)

    @property
    def run_ms(self) -> list[float | None]:
        """p50 and p99."""
        return _both(self.sums.runs)

    @property
    def parts(self) -> dict[str, float]:
        """Milliseconds of all jobs together, by the names and in the order of :mod:`signalbox.jobs.times`."""
        return {name: self.sums.parts[name] for name in PARTS if self.sums.parts.get(name)}


@dataclass(frozen=True, slots=True)
class Use:
    """What an account's jobs that ended in a step took. at: when it began."""

    at: datetime
    jobs: int = 0
    failed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    device_s: float = 0.0


def versions(
    model: str, since: datetime, until: datetime | None = None, step_s: int = MINUTE_S
) -> list[VersionFigures]:
    """Of each version of which a job ended, the newest first. until: None = now.

    Raises :class:`InvalidRequest` for more than :data:`MOST_STEPS` steps.
    """
    until = until or datetime.now(UTC)
    steps = list(_steps(since, until, step_s))
    sums: dict[int, Sums] = {}
    counts: dict[int, dict[int, list[int]]] = {}
    for row in _rows(since, until, step_s).filter(model=model):
        sums.setdefault(row.version, Sums()).merge(row)
        step = counts.setdefault(row.version, {}).setdefault(row.minute // step_s * step_s, [0, 0])
        step[0] += row.succeeded + row.failed + row.cancelled + row.expired
        step[1] += row.failed
    seconds = max(1, round((until - since).total_seconds()))
    return [
        VersionFigures(
            version,
            seconds,
            sums[version],
            [Point(_instant(at), *counts[version].get(at, (0, 0))) for at in steps],
        )
        for version in sorted(sums, reverse=True)
    ]


def models(names: Collection[str], since: datetime) -> dict[str, VersionFigures]:
    """Of those of these models that had a job end since then, all versions together (as version 0), without points."""
    until = datetime.now(UTC)
    sums: dict[str, Sums] = {}
    for row in _rows(since, until, MINUTE_S).filter(model__in=names):
        sums.setdefault(row.model, Sums()).merge(row)
    seconds = max(1, round((until - since).total_seconds()))
    return {name: VersionFigures(0, seconds, one) for name, one in sums.items()}


def account(account_id: str, since: datetime, until: datetime, step_s: int) -> list[Use]:
    """Use of an account in every step, the oldest first. Days long ago are kept by the hour.

    Raises :class:`InvalidRequest` for more than :data:`MOST_STEPS` steps.
    """
    steps = _steps(since, until, step_s)
    step = F("minute") - Mod(F("minute"), Value(step_s))
    rows = _rows(since, until, step_s).filter(account_id=account_id).annotate(step=step).values("step")
    found = {int(row["step"]): row for row in rows.annotate(**_SUMS)}
    return [_use(at, found.get(at)) for at in steps]


def accounts(since: datetime, until: datetime) -> dict[str, Use]:
    """Use of every account that had a job end, by its id; those that took a device the longest first."""
    rows = _rows(since, until, MINUTE_S).values("account_id").annotate(**_SUMS).order_by("-total_ms", "account_id")
    return {row["account_id"]: _use(int(since.timestamp()), row) for row in rows}


_SUMS: Final[dict[str, Any]] = {
    "total": Sum(_JOBS),
    "lost": Sum("failed"),
    "total_in": Sum("bytes_in"),
    "total_out": Sum("bytes_out"),
    "total_ms": Cast(Sum("device_ms"), FloatField()),
}


def _use(at: int, row: dict[str, Any] | None) -> Use:
    if row is None:
        return Use(_instant(at))
    return Use(
        _instant(at),
        int(row["total"]),
        int(row["lost"]),
        int(row["total_in"]),
        int(row["total_out"]),
        row["total_ms"] / _SECOND,
    )


def _rows(since: datetime, until: datetime, step_s: int) -> Any:
    first = int(since.timestamp()) // step_s * step_s
    return Minute.objects.filter(minute__gte=first, minute__lt=until.timestamp()).order_by()


def _steps(since: datetime, until: datetime, step_s: int) -> Iterator[int]:
    first, end = int(since.timestamp()) // step_s * step_s, int(until.timestamp())
    if step_s < 1 or end - first > MOST_STEPS * step_s:
        raise InvalidRequest(f"At most {MOST_STEPS} steps can be shown. Ask for longer steps, or a shorter time.")
    return iter(range(first, max(first + 1, end), step_s))


def _instant(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _both(histogram: Histogram) -> list[float | None]:
    return percentiles(histogram, (0.5, 0.99))
