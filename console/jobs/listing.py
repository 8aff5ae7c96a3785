"""Pages and counts of the job list, with a bound on the rows that one request reads.

What an index serves in the order of the list is read to the end of the page. Anything else is looked for among the next
:data:`SCAN` rows that the best index gives, as many of each value that leads; a page then says how far it looked, and
its cursor goes on there.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from django.db.models import Q, QuerySet

from console.jobs.models import Job
from console.jobs.query import BY_JOB, STATES, JobFilter, Lead
from signalbox.program.errors import InvalidRequest

SCAN: Final = 20_000
"""Most rows that one request looks through."""
COUNTED: Final = 10_000
"""Jobs of one state that are counted; beyond that there are "10 000+"."""
PageStart = tuple[datetime, str]
"""Where a job stands in the list: when it was created, and its id."""


@dataclass(frozen=True)
class JobPage:
    """jobs: in the order of the list. older: cursor of the next page, or None at the end.

    searched_to: where nothing further on has been looked at yet, though the page is not full; None = it is, or all was.
    """

    jobs: list[Job]
    older: str | None
    searched_to: datetime | None = None


def page(
    asked: JobFilter,
    *,
    before: str = "",
    size: int = 50,
    columns: Sequence[str] = (),
    scan: int = 0,
    is_oldest_first: bool = False,
) -> JobPage:
    """One page by keyset: rows that come meanwhile never shift it. Raises :class:`InvalidRequest` for a bad cursor.

    before: cursor of the page. columns: what is read of each job, empty = all. scan: most rows that are looked through,
    0 = :data:`SCAN`. is_oldest_first: the other way round.
    """
    way = _OLDEST if is_oldest_first else _NEWEST
    start = read_cursor(before) if before else None
    leads = [Lead(within(lead, asked) & way.after(start, lead.at), lead.at) for lead in asked.leads]
    # Each lead as far as all can be looked at: what lies beyond comes with the next page.
    share = (scan or SCAN) // max(1, len(leads))
    ends = [way.reach(lead, share) for lead in leads if asked.rest is not None]
    end = way.nearest(at for at in ends if at is not None)
    found: dict[str, Job] = {}
    for lead in leads:
        # One condition: another filter would join the tags anew.
        jobs = Job.objects.filter(lead.condition & way.until(end, lead.at) & (asked.rest or Q()))
        found |= {job.pk: job for job in jobs.order_by(*way.order(lead.at)).only(*columns)[: size + 1]}
    rows = sorted(found.values(), key=_start_after, reverse=not is_oldest_first)
    if len(rows) > size:
        return JobPage(rows[:size], cursor_after(rows[size - 1]))
    if end is None:
        return JobPage(rows, None)
    return JobPage(rows, _cursor((end, way.before_all)), searched_to=end)


def within(lead: Lead, asked: JobFilter) -> Q:
    """A lead with the bounds of when."""
    return lead.condition & Q(*((f"{lead.at}__{bound}", instant) for bound, instant in asked.created))


class _Way(NamedTuple):
    """The order of a list. sign: before what it is ordered by. before_all: an id that stands before all of an instant.

    up_to, beyond: how an instant that follows compares.
    """

    sign: str
    up_to: str
    beyond: str
    before_all: str

    def order(self, at: str) -> tuple[str, str]:
        """Of the list."""
        return f"{self.sign}{at}", f"{self.sign}id"

    def after(self, start: PageStart | None, at: str) -> Q:
        """What follows a job in the list."""
        if start is None:
            return Q()
        instant, job_id = start
        # The first term is in the second, but it is the one that an index understands.
        return Q((f"{at}__{self.beyond}e", instant)) & (
            Q((f"{at}__{self.beyond}", instant)) | Q((f"pk__{self.beyond}", job_id))
        )

    def until(self, end: datetime | None, at: str) -> Q:
        """What stands in the list before an instant, or at it."""
        return Q() if end is None else Q((f"{at}__{self.up_to}", end))

    def reach(self, lead: Lead, number: int) -> datetime | None:
        """When the row with this number was created, or None where no more follow it."""
        return reach(Job.objects.filter(lead.condition), number, lead.at, sign=self.sign)

    def nearest(self, instants: Iterable[datetime]) -> datetime | None:
        """The one that comes first in the list."""
        return max(instants, default=None) if self.sign else min(instants, default=None)


_NEWEST: Final = _Way("-", "gte", "lt", "")
_OLDEST: Final = _Way("", "lte", "gt", "~")
"""No id is greater than the tilde."""


def counts(asked: JobFilter, *, most: int = 0) -> dict[str, str]:
    """How many jobs of each state there are, in words, and of all under ``all``. most: 0 = :data:`COUNTED`."""
    if asked.leads == (Lead(Q()),) and asked.rest is None:
        found, is_cut = _count_states(within(Lead(Q()), asked), most or COUNTED)
    else:
        found, is_cut = _count_newest(asked, most or COUNTED)
    return _in_words(found, is_cut)


def _count_states(created: Q, most: int) -> tuple[dict[str, int], set[str]]:
    """Every state by its own index, each up to its bound."""
    found: dict[str, int] = {}
    for state in STATES:
        jobs = Job.objects.filter(created, state=state).values("state").order_by()
        found[state] = jobs[: most + 1].count()
    is_cut = {state for state, count in found.items() if count > most}
    return {state: min(count, most) for state, count in found.items()}, is_cut


def _count_newest(asked: JobFilter, most: int) -> tuple[dict[str, int], set[str]]:
    """Job counts by state among the newest rows of each lead; older rows are not looked at."""
    found: dict[str, str] = {}
    is_cut: set[str] = set()
    for one in asked.leads:
        lead = within(one, asked)
        low = reach(Job.objects.filter(lead), most, one.at)
        if low is not None:
            lead &= Q((f"{one.at}__gte", low))
            is_cut |= set(STATES)
        jobs = Job.objects.filter(lead & (asked.rest or Q()))
        # Grouped here: to group them, SQLite would walk the whole index of states.
        found.update(jobs.order_by(f"-{one.at}").values_list("pk", "state"))
    return dict.fromkeys(STATES, 0) | Counter(found.values()), is_cut


def _in_words(found: dict[str, int], is_cut: Iterable[str]) -> dict[str, str]:
    cut = set(is_cut)
    words = {state: _number(count, is_cut=state in cut) for state, count in found.items()}
    return {"all": _number(sum(found.values()), is_cut=bool(cut)), **words}


def _number(count: int, *, is_cut: bool) -> str:
    return f"{count:,}".replace(",", " ") + ("+" if is_cut else "")


def reach(jobs: QuerySet[Job], number: int, at: str = BY_JOB, *, sign: str = "-") -> datetime | None:
    """When the row with this number was created, or None where no more follow it; read from the index alone.

    sign: minus = counted from the newest one.
    """
    ordered = jobs.order_by(f"{sign}{at}").values_list(at, flat=True)
    found: list[datetime] = list(ordered[number - 1 : number + 1])
    return found[0] if len(found) > 1 else None


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
