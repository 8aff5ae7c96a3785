"""Pages and counts of the job list, with a bound on the rows that one request reads.

What an index serves in the order of the list is read to the end of the page. Anything else is looked for among the next
:data:`SCAN` rows that the best index gives, as many of each value that leads; a page then says how far it looked, and
its cursor goes on there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db.models import Q, QuerySet

from console.jobs.models import Job
from console.jobs.query import BY_JOB, STATES, JobFilter
from signalbox.program.errors import InvalidRequest

SCAN: Final = 20_000
"""Most rows that one request looks through."""
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


def page(asked: JobFilter, *, before: str = "", size: int = 50, columns: Sequence[str] = (), scan: int = 0) -> JobPage:
    """One page by keyset: rows that come meanwhile never shift it. Raises :class:`InvalidRequest` for a bad cursor.

    columns: what is read of each job, empty = all. scan: most rows that are looked through, 0 = :data:`SCAN`.
    """
    leads = [lead & asked.created & _before(read_cursor(before) if before else None, asked.at) for lead in asked.leads]
    # Each lead as far as all can be looked at: what lies beyond comes with the next page.
    share = (scan or SCAN) // max(1, len(leads))
    lows = [reach(Job.objects.filter(lead), share, asked.at) for lead in leads if asked.rest is not None]
    floor = max((low for low in lows if low is not None), default=None)
    rest = asked.rest or Q()
    if floor is not None:
        rest &= Q((f"{asked.at}__gte", floor))
    found: list[Job] = []
    for lead in leads:
        # One condition: another filter would join the tags anew.
        found += Job.objects.filter(lead & rest).order_by(f"-{asked.at}", "-id").only(*columns)[: size + 1]
    rows = sorted(found, key=_start_after, reverse=True)
    if len(rows) > size:
        return JobPage(rows[:size], cursor_after(rows[size - 1]))
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
    for one in asked.leads:
        lead = one & asked.created
        low = reach(Job.objects.filter(lead), COUNTED, asked.at)
        if low is not None:
            lead &= Q((f"{asked.at}__gte", low))
            is_cut |= set(STATES)
        jobs = Job.objects.filter(lead & (asked.rest or Q()))
        # Grouped here: to group them, SQLite would walk the whole index of states.
        for state in jobs.order_by(f"-{asked.at}").values_list("state", flat=True):
            found[state] += 1
    return found, is_cut


def _in_words(found: dict[str, int], is_cut: Iterable[str]) -> dict[str, str]:
    cut = set(is_cut)
    words = {state: _number(count, is_cut=state in cut) for state, count in found.items()}
    return {"all": _number(sum(found.values()), is_cut=bool(cut)), **words}


def _number(count: int, *, is_cut: bool) -> str:
    return f"{count:,}".replace(",", " ") + ("+" if is_cut else "")


def reach(jobs: QuerySet[Job], number: int, at: str = BY_JOB) -> datetime | None:
    """When the row with this number was created, or None where no more follow it; read from the index alone."""
    ordered = jobs.order_by(f"-{at}").values_list(at, flat=True)
    found: list[datetime] = list(ordered[number - 1 : number + 1])
    return found[0] if len(found) > 1 else None


def _before(start: PageStart | None, at: str) -> Q:
    if start is None:
        return Q()
    instant, job_id = start
    # The first term is in the second, but it is the one that an index understands.
    return Q((f"{at}__lte", instant)) & (Q((f"{at}__lt", instant)) | Q(pk__lt=job_id))


def cursor_after(job: Job) -> str:
    """The cursor of a page that begins after this job."""
    return _cursor(_start_after(job))


def _start_after(job: Job) -> PageStart:
    return job.created_at, job.pk


def _cursor(start: PageStart) -> str:
    return f"{start[0].timestamp():.6f}_{start[1]}"


def read_cursor(text: str) -> PageStart:
    """Where a page begins. Raises :class:`InvalidRequest`."""
    at, _, job_id = text.partition("_")
    try:
        return datetime.fromtimestamp(float(at), tz=UTC), job_id
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidRequest("The cursor is damaged: begin again without it, at the first page.") from error
