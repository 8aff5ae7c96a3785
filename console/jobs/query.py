"""The filter grammar of the job list, one for page and API: ``state:running model:digits created:<2h``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from typing import Final

from django.db import connection
from django.db.models import Exists, OuterRef, Q

from console import bounds
from console.accounts import scope
from console.jobs.models import HAS_ERROR, JobTag
from signalbox.program.errors import InvalidRequest
from signalbox.wire.messages import State
from signalbox.wire.names import JOB_ID, TAG

STATES: Final = tuple(state.value for state in State)
_COLUMNS: Final = {
    "state": "state",
    "model": "model",
    "version": "version",
    "account": "account_id",
    "key": "key_id",
    "worker": "worker",
    "gpu": "gpu",
    "error": "error_code",
    "token": "token",
    "priority": "priority",
}
_LEADERS: Final = ("tag", "error", "key", "account", "worker", "gpu", "model", "state")
"""Columns with an index in the order of the list, the ones that choose the fewest rows first."""
_NUMBERS: Final = frozenset({"version", "token"})
QUALIFIERS: Final = (*_COLUMNS, "id", "tag", "created", "took")
BY_JOB: Final = "created_at"
BY_TAG: Final = "labels__created_at"
"""The same instant, where an index of tags leads."""
_AGE: Final = re.compile(r"([<>]?)(\d{1,6})(s|m|h|d)\Z")
_SPAN: Final = re.compile(r"([<>]?)(\d{1,8})(ms|s|m)\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MS: Final = {"ms": 1, "s": 1000, "m": 60_000}
_ID: Final = re.compile(r"[0-9a-f-]{2,36}\Z")
_FEW: Final = 8
"""Characters of an id that few jobs share; fewer are looked for like anything without an index."""
_SHOWN: Final = 60
"""Characters of a word that a refusal repeats."""


@dataclass(frozen=True)
class JobFilter:
    """What a text asks for, as the database can answer it.

    leads: conditions of which each is served by one index in the order of the list; their union holds every job
    asked for. rest: what a job must fulfil besides; None = nothing. created: in every lead, and in each index.
    at: when a job was created, as the indexes of the leads have it.
    """

    leads: tuple[Q, ...]
    rest: Q | None
    created: Q
    at: str = BY_JOB


def parse(text: str, now: datetime) -> JobFilter:
    """The filter a text means. Raises :class:`InvalidRequest` with a hint for what is not understood."""
    if len(text) > bounds.MOST_LETTERS:
        raise InvalidRequest(f"A filter has at most {bounds.MOST_LETTERS} characters.")
    words = text.split()
    if len(words) > bounds.MOST_WORDS:
        raise InvalidRequest(f"A filter has at most {bounds.MOST_WORDS} words.")
    choices: list[tuple[str, list[str]]] = []
    rest: list[Q] = []
    ids: list[Q] = []
    created: list[tuple[str, datetime]] = []
    for word in words:
        name, colon, value = word.partition(":")
        if not colon:
            name, value = ("id", word) if _ID.match(word) else ("model", word)
        elif not value:
            raise InvalidRequest(f"{name[:_SHOWN]}: has no value.")
        if name == "created":
            created.append(_age(value, now))
        elif name == "id":
            (ids if len(value) >= _FEW else rest).append(_id(value.lower()))
        elif name == "took":
            rest.append(_span(value))
        else:
            choices.append((name, _values(name, value)))
    return _led(choices, ids, rest, created)


def _led(
    choices: list[tuple[str, list[str]]], ids: list[Q], rest: list[Q], created: list[tuple[str, datetime]]
) -> JobFilter:
    """Choose what leads: an id, or the column that chooses the fewest rows; all else is looked at row by row."""
    leads: tuple[Q, ...] = (Q(),)
    at = BY_JOB
    if ids:
        leads = (ids[0],)
        rest = [*rest, *ids[1:]]
    else:
        able = [choice for choice in choices if choice[0] in _LEADERS]
        if able:
            chosen = min(able, key=_rank)
            choices.remove(chosen)
            if chosen[0] == "tag":
                leads, at = (Q(labels__tag=chosen[1][0]),), BY_TAG
            else:
                leads = tuple(_is_one(chosen[0], [value]) for value in dict.fromkeys(chosen[1]))
    rest = [*rest, *(_is_one(name, values) for name, values in choices)]
    return JobFilter(leads, together(rest), Q(*((f"{at}__{bound}", instant) for bound, instant in created)), at)


def within(asked: JobFilter, names: Sequence[str]) -> JobFilter:
    """Of those, the jobs of these models; names, or beginnings of names; empty: of all."""
    if not names:
        return asked
    if asked.leads == (Q(),) and not any(name.endswith("*") for name in names):
        return replace(asked, leads=tuple(Q(model=name) for name in names))
    limit = scope.within(names)
    return replace(asked, rest=limit if asked.rest is None else asked.rest & limit)


def together(conditions: Sequence[Q]) -> Q | None:
    """All of them as one; None where there are none."""
    return reduce(and_, conditions) if conditions else None


def has_tag(tag: str) -> Q:
    """Whether a job has a tag, looked up job by job."""
    return Q(Exists(JobTag.objects.filter(job_id=OuterRef("pk"), tag=tag)))


def _rank(choice: tuple[str, list[str]]) -> int:
    """The fewer jobs a choice is likely to leave, the lower. Most jobs succeed, so any other state leaves few."""
    name, values = choice
    return 0 if name == "state" and State.SUCCEEDED not in values else _LEADERS.index(name)


def _values(name: str, value: str) -> list[str]:
    if name == "tag":
        if not TAG.match(value):
            raise InvalidRequest("tag: is one tag. Jobs that have two: tag:ONE tag:OTHER.")
        return [value]
    if name not in _COLUMNS:
        raise InvalidRequest(f"Unknown filter {name[:_SHOWN]}:. Known: {', '.join(QUALIFIERS)}.")
    values = value.split(",")
    if len(values) > bounds.MOST_VALUES:
        raise InvalidRequest(f"{name}: takes at most {bounds.MOST_VALUES} values.")
    if name == "state" and not set(values) <= set(STATES):
        raise InvalidRequest(f"state: is one of {', '.join(STATES)}, also several with commas.")
    return [str(bounds.number(one, name)) for one in values] if name in _NUMBERS else values


def _is_one(name: str, values: Sequence[str]) -> Q:
    if name == "tag":
        return has_tag(values[0])
    column = _COLUMNS[name]
    is_one = Q(**{column: values[0]}) if len(values) == 1 else Q(**{f"{column}__in": list(values)})
    # The words of the partial index: SQLite uses it only where they stand in the query too.
    return is_one & HAS_ERROR if name == "error" and "" not in values else is_one


def _id(value: str) -> Q:
    if JOB_ID.match(value):
        return Q(pk=value)
    if connection.vendor == "sqlite" and _ID.match(value):
        # Its LIKE uses no index. Texts are compared byte by byte there.
        return Q(pk__gte=value, pk__lt=value[:-1] + chr(ord(value[-1]) + 1))
    return Q(pk__startswith=value)


def _age(value: str, now: datetime) -> tuple[str, datetime]:
    match = _AGE.match(value)
    if match is None:
        raise InvalidRequest("created: is an age such as <2h (newer than) or >3d (older than).")
    age_s = int(match[2]) * _SECONDS[match[3]]
    if age_s > bounds.MOST_AGE_DAYS * _SECONDS["d"]:
        raise InvalidRequest(f"created: goes back at most {bounds.MOST_AGE_DAYS} days.")
    at = now - timedelta(seconds=age_s)
    return "lt" if match[1] == ">" else "gte", at


def _span(value: str) -> Q:
    match = _SPAN.match(value)
    if match is None:
        raise InvalidRequest("took: is a duration from acceptance to end, such as >5s or <100ms.")
    limit = int(match[2]) * _MS[match[3]]
    return Q(phases__done__lt=limit) if match[1] == "<" else Q(phases__done__gte=limit)
