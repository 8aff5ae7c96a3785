"""Calls, errors and times of both versions of a split, from the rows of jobs since it began.

They are looked for among a bounded number of the model's newest rows, by the index that the job list has.
"""

from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, Q, QuerySet

from console.catalog.models import VersionSplit
from console.jobs import listing
from console.jobs.models import Job
from console.splits.rule import LAST, Call, Sample, sample
from signalbox.jobs.times import RUN
from signalbox.wire.messages import State

_FAILED = Q(state=State.FAILED.value) | Q(strikes__gt=0)
_COUNTS = _FAILED | Q(state=State.SUCCEEDED.value)


class Side(NamedTuple):
    """One version. calls, failed: since the split began, as far as was looked. last: its newest calls."""

    version: int
    calls: int
    failed: int
    last: Sample


class Comparison(NamedTuple):
    """Both versions. counted_since: the split began before, and older rows were not looked at; None = all were."""

    candidate: Side
    other: Side
    counted_since: datetime | None

    @property
    def sides(self) -> tuple[Side, Side]:
        """The other version, then the candidate."""
        return self.other, self.candidate


def compare(split: VersionSplit) -> Comparison:
    """Figures of both sides."""
    rows, floor = _rows(split)
    groups = rows.filter(_COUNTS, version__in=(split.candidate, split.base)).order_by().values("version")
    counted = groups.annotate(calls=Count("pk"), failed=Count("pk", filter=_FAILED))
    found = {one["version"]: (one["calls"], one["failed"]) for one in counted}
    candidate, other = (
        Side(version, *found.get(version, (0, 0)), _last(rows, version)) for version in (split.candidate, split.base)
    )
    return Comparison(candidate, other, floor)


def last(split: VersionSplit) -> tuple[Sample, Sample]:
    """What the rule reads: the candidate's last calls, and the other version's."""
    rows, _ = _rows(split)
    return _last(rows, split.candidate), _last(rows, split.base)


def _rows(split: VersionSplit) -> tuple[QuerySet[Job], datetime | None]:
    """Rows of the model since the split began, the newest first, a bounded number; from when on, if there are more."""
    rows = Job.objects.filter(model=split.model.name, created_at__gte=split.started_at)
    floor = listing.reach(rows, listing.SCAN)
    return (rows if floor is None else rows.filter(created_at__gte=floor)).order_by("-created_at"), floor


def _last(rows: QuerySet[Job], version: int) -> Sample:
    calls = rows.filter(_COUNTS, version=version).values_list("state", "strikes", "parts")[:LAST]
    return sample([_call(*one) for one in calls])


def _call(state: str, strikes: int, parts: dict[str, float]) -> Call:
    is_done = state == State.SUCCEEDED.value
    return Call(is_error=state == State.FAILED.value, is_crash=strikes > 0, run_ms=parts.get(RUN) if is_done else None)
