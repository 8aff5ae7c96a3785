"""Pages and counts of the job list, with a bound on the rows that one request reads.

What an index serves in the order of the list is read to the end of the page. Anything else is looked for among the next
:data:`SCAN` rows that the best index gives; a page then says how far it looked, and its cursor goes on there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db.models import Q, QuerySet

from console.jobs.models import Job
from console.jobs.query import STATES, JobFilter
from signalbox.program.errors import InvalidRequest

SCAN: Final = 20_000
"""Most rows of one index that one request reads."""
COUNTED: Final = 10_000
"""Jobs of one state that are counted; beyond that there are "10 000+"."""
PageStart = tuple[datetime, str]
"""Where a job stands in the list: when it was created, and its id."""


@dataclass(frozen=True)
class JobPage:
    """jobs: newest first. older: cursor of the next page, or None at the end.

    searched_to: where nothing older has been looked at yet, though the page is not full; None = it is, or all was.
    """

    jobs: list[Job]
    older: str | None
    searched_to: datetime | None = None


def page(asked: JobFilter, *, before: str = "", size: int = 50) -> JobPage:
    """One page by keyset: rows that come meanwhile never shift it. Raises :class:`InvalidRequest` for a bad cursor."""
    start = _read_cursor(before) if before else None
    found: list[Job] = []
    floor: datetime | None = None
    for lead in asked.leads:
        jobs = Job.objects.filter(lead & asked.created & _before(start))
        if asked.rest is not None:
            low = _reach(jobs, SCAN)
            if low is not None:
                jobs = jobs.filter(created_at__gte=low)
                floor = low if floor is None else max(floor, low)
            jobs = jobs.filter(asked.rest)
        found += jobs.order_by("-created_at", "-id")[: size + 1]
    # Of several leads one may have been looked at further than another: what lies beyond comes with the next page.
    rows = sorted((job for job in found if floor is None or job.created_at >= floor), key=_start_after, reverse=True)
    if len(rows) > size:
        return JobPage(rows[:size], _cursor(_start_after(rows[size - 1])))
    if floor is None:
        return JobPage(rows, None)
    return JobPage(rows, _cursor((floor, "")), searched_to=floor)  # before all jobs of that instant


def counts(asked: JobFilter) -> dict[str, str]:
    """How many jobs of each state there are, in words, and of all under ``all``."""
    if asked.leads == (Q(),) and asked.rest is None:
        found, is_cut = _count_states(asked.created)
    else:
        found, is_cut = _count_newest(asked)
    return _in_words(found, is_cut)


def _count_states(created: Q) -> tuple[dict[str, int], set[str]]:
    """Every state by its own index, each up to its bound."""
    found: dict[str, int] = {}
    for state in STATES:
        jobs = Job.objects.filter(created, state=state).values("state").order_by()
        found[state] = jobs[: COUNTED + 1].count()
    is_cut = {state for state, count in found.items() if count > COUNTED}
    return {state: min(count, COUNTED) for state, count in found.items()}, is_cut


def _count_newest(asked: JobFilter) -> tuple[dict[str, int], set[str]]:
    """Job counts by state among the newest rows of each lead; older rows are not looked at."""
    found = dict.fromkeys(STATES, 0)
    is_cut: set[str] = set()
    for lead in asked.leads:
        jobs = Job.objects.filter(lead & asked.created)
        low = _reach(jobs, COUNTED)
        if low is not None:
            jobs = jobs.filter(created_at__gte=low)
            is_cut |= set(STATES)
        if asked.rest is not None:
            jobs = jobs.filter(asked.rest)
        # Grouped here: to group them, SQLite would walk the whole index of states.
        for state in jobs.order_by("-created_at").values_list("state", flat=True):
            found[state] += 1
    return found, is_cut


def _in_words(found: dict[str, int], is_cut: Iterable[str]) -> dict[str, str]:
    cut = set(is_cut)
    words = {state: _number(count, is_cut=state in cut) for state, count in found.items()}
    return {"all": _number(sum(found.values()), is_cut=bool(cut)), **words}


def _number(count: int, *, is_cut: bool) -> str:
    return f"{count:,}".replace(",", " ") + ("+" if is_cut else "")


def _reach(jobs: QuerySet[Job], number: int) -> datetime | None:
    """When the row with this number was created, or None where no more follow it; read from the index alone."""
    ordered = jobs.order_by("-created_at").values_list("created_at", flat=True)
    found: list[datetime] = list(ordered[number - 1 : number + 1])
    return found[0] if len(found) > 1 else None


def _before(start: PageStart | None) -> Q:
    if start is None:
        return Q()
    at, job_id = start
    # The first term is in the second, but it is the one that an index understands.
    return Q(created_at__lte=at) & (Q(created_at__lt=at) | Q(pk__lt=job_id))


def _start_after(job: Job) -> PageStart:
    return job.created_at, job.pk


def _cursor(start: PageStart) -> str:
    return f"{start[0].timestamp():.6f}_{start[1]}"


def _read_cursor(text: str) -> PageStart:
    at, _, job_id = text.partition("_")
    try:
        return datetime.fromtimestamp(float(at), tz=UTC), job_id
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidRequest("This page link is damaged; go back to the first page.") from error
