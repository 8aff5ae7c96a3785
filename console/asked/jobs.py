"""Lists jobs for the owner of an API key: the rows of the key's account, a page at a time."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from django.db.models import Q
from msgspec.structs import replace

from console.jobs import listing
from console.jobs.models import Job
from console.jobs.moments import Bound
from console.jobs.query import BY_TAG, STATES, JobFilter, Lead, has_tag, together
from signalbox.program.errors import InvalidRequest
from signalbox.wire.asks import MOST_BYTES, MOST_LISTED, JobPage, JobQuery, ListedJob
from signalbox.wire.messages import State, encode
from signalbox.wire.names import MODEL_NAME, MOST_TAGS, TAG

SCAN: Final = 10_000
"""Most rows that one question looks through: a tenth of a second, in which no other is answered."""
_MOST_LETTERS: Final = 200
_CURSOR: Final = re.compile(r"[0-9]{1,12}\.[0-9]{6}_[0-9a-f-]{0,36}\Z")
_COLUMNS: Final = (
    *("model", "version", "state", "priority", "attempt", "tags", "error_code", "error_message"),
    *("created_at", "finished_at", "deadline_at", "not_before"),
)
_ROOM_BYTES: Final = 4096
"""Of an answer, for what is around its page."""


def page(account: str, query: JobQuery, as_of: float) -> JobPage:
    """A page of an account's jobs, at most :data:`MOST_BYTES` long. as_of: see :class:`JobPage`.

    Raises :class:`InvalidRequest` for what cannot be asked: gateways refuse it with better words.
    """
    if not (
        set(query.states) <= set(STATES)
        and (not query.model or MODEL_NAME.match(query.model))
        and len(query.tags) <= MOST_TAGS
        and all(map(TAG.match, query.tags))
        and len(query.error) <= _MOST_LETTERS
        and query.error.isprintable()
        and 1 <= query.limit <= MOST_LISTED
    ):
        raise InvalidRequest("The console does not understand this filter: gateway and console are of two releases.")
    if query.cursor and not _CURSOR.match(query.cursor):
        raise InvalidRequest("The cursor is damaged: begin again without it.")
    found = listing.page(_filter(account, query), before=query.cursor, size=query.limit, columns=_COLUMNS, scan=SCAN)
    searched_to = found.searched_to.timestamp() if found.searched_to is not None else 0.0
    listed = JobPage(
        jobs=tuple(map(_listed, found.jobs)), cursor=found.older or "", as_of=as_of, looked_until=searched_to
    )
    return _cut(listed, found.jobs)


def _cut(page: JobPage, jobs: list[Job]) -> JobPage:
    """What of a page an answer has room for; the cursor goes on behind it."""
    most, size = len(jobs), 0
    for number, job in enumerate(page.jobs):
        size += len(encode(job)) + 1
        if size > MOST_BYTES - _ROOM_BYTES:
            most = number
            break
    if most == len(jobs):
        return page
    return replace(page, jobs=page.jobs[:most], cursor=listing.cursor_after(jobs[most - 1]), looked_until=0.0)


def _filter(account: str, query: JobQuery) -> JobFilter:
    """What leads: a tag, or the account with each state by itself, so that no other state's jobs are looked at.

    Who gives a job tags does so at the job API, whose jobs are no synchronous predictions.
    """
    states = list(query.states or STATES)
    if query.error:  # what succeeded has none, though an attempt of it may have had
        states = [state for state in states if state != State.SUCCEEDED]
    rest = [Q(model=query.model)] if query.model else []
    rest += [has_tag(tag) for tag in query.tags[1:]]
    if query.error:
        rest.append(Q(error_code__icontains=query.error) | Q(error_message__icontains=query.error))
    leads: Iterable[Lead]
    if query.tags:
        leads = [Lead(Q(labels__account_id=account, labels__tag=query.tags[0]), BY_TAG)]
    elif query.with_sync:
        leads = [Lead(Q(account_id=account))]
    else:
        leads = [Lead(Q(account_id=account, is_sync=False, state=state)) for state in states]
    if query.tags or query.with_sync:
        rest += [Q(state__in=states)] if len(states) < len(STATES) else []
    return JobFilter(tuple(leads), together(rest), _created(query))


def _created(query: JobQuery) -> tuple[Bound, ...]:
    bounds = {"gte": query.since, "lt": query.until}
    try:
        return tuple((name, datetime.fromtimestamp(bound, UTC)) for name, bound in bounds.items() if bound)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidRequest("The console does not know such an instant.") from error


def _listed(job: Job) -> ListedJob:
    has_error = job.error_code and job.state != State.SUCCEEDED
    return ListedJob(
        id=job.pk,
        model=job.model,
        version=job.version,
        state=job.state,
        priority=job.priority,
        attempt=job.attempt,
        tags=tuple(job.tags),
        created_at=job.created_at.timestamp(),
        finished_at=_seconds(job.finished_at),
        deadline_at=_seconds(job.deadline_at),
        not_before=_seconds(job.not_before) or 0.0,
        error_code=job.error_code if has_error else "",
        error_message=job.error_message if has_error else "",
    )


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None
