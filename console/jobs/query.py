"""The filter grammar of the job list, one for page and API: ``state:running model:digits created:<2h``."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Q, QuerySet

from console.jobs.models import Job
from signalbox.errors import InvalidRequest
from signalbox.messages import State

STATES: Final = tuple(state.value for state in State)
_COLUMNS: Final = {
    "state": "state", "model": "model", "version": "version", "key": "key_id", "worker": "worker",
    "gpu": "gpu", "error": "error_code", "token": "token", "priority": "priority",
}  # fmt: skip
_NUMBERS: Final = frozenset({"version", "token"})
QUALIFIERS: Final = (*_COLUMNS, "id", "created", "ran")
_AGE: Final = re.compile(r"([<>]?)(\d{1,6})(s|m|h|d)\Z")
_SPAN: Final = re.compile(r"([<>]?)(\d{1,8})(ms|s|m)\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MS: Final = {"ms": 1, "s": 1000, "m": 60_000}
_ID: Final = re.compile(r"[0-9a-f-]{2,36}\Z")


@dataclass(frozen=True)
class Page:
    """jobs: newest first. older: cursor of the next page, or None at the end."""

    jobs: list[Job]
    older: str | None


def parse(text: str, now: datetime) -> Q:
    """The condition a filter means. Raises :class:`InvalidRequest` with a hint for what is not understood."""
    condition = Q()
    for word in text.split():
        name, colon, value = word.partition(":")
        if not colon:
            condition &= Q(id__startswith=word) if _ID.match(word) else Q(model=word)
        elif not value:
            raise InvalidRequest(f"{name}: has no value.")
        else:
            condition &= _qualifier(name, value, now)
    return condition


def page(jobs: QuerySet[Job], *, before: str = "", size: int = 50) -> Page:
    """One page by keyset: rows that come meanwhile never shift it. Raises :class:`InvalidRequest` for a bad cursor."""
    if before:
        at, job_id = _read_cursor(before)
        jobs = jobs.filter(Q(created_at__lt=at) | Q(created_at=at, id__lt=job_id))
    rows = list(jobs.order_by("-created_at", "-id")[: size + 1])
    older = _cursor(rows[size - 1]) if len(rows) > size else None
    return Page(rows[:size], older)


def _qualifier(name: str, value: str, now: datetime) -> Q:
    if name == "id":
        return Q(id__startswith=value.lower())
    if name == "created":
        return _age(value, now)
    if name == "ran":
        return _span(value)
    column = _COLUMNS.get(name)
    if column is None:
        raise InvalidRequest(f"Unknown filter {name}:. Known: {', '.join(QUALIFIERS)}.")
    if name == "state" and not set(value.split(",")) <= set(STATES):
        raise InvalidRequest(f"state: is one of {', '.join(STATES)}, also several with commas.")
    if name in _NUMBERS and not all(part.isdecimal() for part in value.split(",")):
        raise InvalidRequest(f"{name}: is a number.")
    return Q(**{f"{column}__in": value.split(",")})


def _age(value: str, now: datetime) -> Q:
    match = _AGE.match(value)
    if match is None:
        raise InvalidRequest("created: is an age such as <2h (newer than) or >3d (older than).")
    at = now - timedelta(seconds=int(match[2]) * _SECONDS[match[3]])
    return Q(created_at__lt=at) if match[1] == ">" else Q(created_at__gte=at)


def _span(value: str) -> Q:
    match = _SPAN.match(value)
    if match is None:
        raise InvalidRequest("ran: is a duration from acceptance to end, such as >5s or <100ms.")
    limit = int(match[2]) * _MS[match[3]]
    return Q(phases__done__lt=limit) if match[1] == "<" else Q(phases__done__gte=limit)


def _cursor(job: Job) -> str:
    return f"{job.created_at.timestamp():.6f}_{job.id}"


def _read_cursor(text: str) -> tuple[datetime, str]:
    at, _, job_id = text.partition("_")
    try:
        return datetime.fromtimestamp(float(at), tz=UTC), job_id
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidRequest("This page link is damaged; go back to the first page.") from error
