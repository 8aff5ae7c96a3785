"""The filter grammar of the job list, one for page and API: ``state:running model:digits created:<2h -key:ci``.

A word is a qualifier with its value, or is looked for as a model, a tag, an error's code and the beginning of an id.
Quotes make one word of several, a minus before a word means the jobs that it does not fit.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import reduce
from operator import and_
from typing import Final, NamedTuple

from django.apps import apps
from django.db import connection
from django.db.models import Exists, OuterRef, Q

from console import bounds
from console.accounts import scope
from console.jobs import moments
from console.jobs.models import HAS_ERROR, JobTag
from signalbox.program.errors import InvalidRequest
from signalbox.wire.jobids import JOB_ID
from signalbox.wire.messages import State
from signalbox.wire.names import TAG

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
    "group": "error_group",
    "token": "token",
    "priority": "priority",
}
QUALIFIERS: Final = (*_COLUMNS, "id", "tag", "created", "took")
_RANKS: Final = (
    "id",
    "rare state",
    "tag",
    "group",
    "error",
    "text",
    "key",
    "account",
    "worker",
    "gpu",
    "word",
    "model",
)
"""What an index serves in the order of the list, that which chooses the fewest rows first."""
_NUMBERS: Final = frozenset({"version", "token"})
_NAMED: Final = {"account": ("keys", "Account"), "key": ("keys", "ApiKey")}
"""What is asked for by name too: these tables lie above this package."""
BY_JOB: Final = "created_at"
BY_TAG: Final = "labels__created_at"
"""The same instant, where an index of tags leads."""
_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')
_SPAN: Final = re.compile(r"([<>]?)(\d{1,8})(ms|s|m)\Z")
_MS: Final = {"ms": 1, "s": 1000, "m": 60_000}
_ID: Final = re.compile(r"[0-9a-f-]{2,36}\Z")
_CODE: Final = re.compile(r"[a-z0-9_,]+\Z")
_FEW: Final = 8
"""Characters of an id that few jobs share; fewer are looked for like anything without an index."""
_SHOWN: Final = 60
"""Characters of a word that a refusal repeats."""


class Lead(NamedTuple):
    """What one index serves in the order of the list. at: when a job was created, as that index has it."""

    condition: Q
    at: str = BY_JOB


@dataclass(frozen=True)
class JobFilter:
    """What a text asks for, as the database can answer it.

    leads: their union holds every job asked for; one may be in several. rest: what a job must fulfil besides; None =
    nothing. created: bounds of when, such as ``("gte", instant)``, for each index.
    """

    leads: tuple[Lead, ...]
    rest: Q | None
    created: tuple[moments.Bound, ...] = ()


class _Choice(NamedTuple):
    """What one word asks for. leads: by indexes, empty = none serves it. condition: of a job's row."""

    rank: int
    leads: tuple[Lead, ...]
    condition: Q


def parse(text: str, now: datetime) -> JobFilter:
    """The filter a text means. Raises :class:`InvalidRequest` with a hint for what is not understood."""
    choices: list[_Choice] = []
    created: list[moments.Bound] = []
    for word in words_of(text):
        is_negated = word.startswith("-") and len(word) > 1
        name, value = _taken_apart(word.removeprefix("-") if is_negated else word)
        if name == "created":
            if is_negated:
                raise InvalidRequest("created: has no opposite: its < and > are each other's.")
            created += moments.bounds_of(value, now)
        elif is_negated:
            choices.append(_opposite(name, value))
        else:
            choices += _choices(name, value)
    able = [choice for choice in choices if choice.leads]
    chosen = min(able, key=lambda choice: choice.rank, default=None)
    rest = [choice.condition for choice in choices if choice is not chosen]
    return JobFilter(chosen.leads if chosen is not None else (Lead(Q()),), together(rest), tuple(created))


def words_of(text: str) -> list[str]:
    """The words of a filter, with their quotes. Raises :class:`InvalidRequest` where there are too many."""
    if len(text) > bounds.MOST_LETTERS:
        raise InvalidRequest(f"A filter has at most {bounds.MOST_LETTERS} characters.")
    if text.count('"') % 2:
        raise InvalidRequest('A quote is not closed: error:"out of memory".')
    words = _WORD.findall(text)
    if len(words) > bounds.MOST_WORDS:
        raise InvalidRequest(f"A filter has at most {bounds.MOST_WORDS} words.")
    return words


def quoted(name: str, value: str) -> str:
    """The word of a filter that asks for a value, whatever stands in it."""
    value = value.replace('"', " ")
    return f'{name}:"{value}"' if " " in value else f"{name}:{value}"


def within(asked: JobFilter, names: Sequence[str]) -> JobFilter:
    """Of those, the jobs of these models; names, or beginnings of names; empty: of all."""
    if not names:
        return asked
    if asked.leads == (Lead(Q()),) and not any(name.endswith("*") for name in names):
        return replace(asked, leads=tuple(Lead(Q(model=name)) for name in names))
    limit = scope.within(names)
    return replace(asked, rest=limit if asked.rest is None else asked.rest & limit)


def together(conditions: Sequence[Q]) -> Q | None:
    """All of them as one; None where there are none."""
    return reduce(and_, conditions) if conditions else None


def has_tag(tag: str) -> Q:
    """Whether a job has a tag, looked up job by job."""
    return Q(Exists(JobTag.objects.filter(job_id=OuterRef("pk"), tag=tag)))


def _taken_apart(word: str) -> tuple[str, str]:
    """``(name, value)``; the name is empty for a bare word, ``text`` for what an error's text holds."""
    name, sign, value = word.partition(":")
    if word.startswith("error~"):
        name, sign, value = "text", "~", word.removeprefix("error~")
    elif not sign or '"' in name:
        name, value = ("text" if " " in word else ""), word
    elif name == "error" and not _CODE.match(value) and value:
        name = "text"
    value = value.replace('"', "")
    if not value:
        raise InvalidRequest(f"{name[:_SHOWN] or 'A word'}: has no value.")
    return name, value


def _opposite(name: str, value: str) -> _Choice:
    if name == "state":
        others = [state for state in STATES if state not in _values(name, value)]
        if others:
            return _state(others)
    return _Choice(0, (), ~reduce(and_, (choice.condition for choice in _choices(name, value))))


def _choices(name: str, value: str) -> list[_Choice]:
    """What a word asks for; each is to be fulfilled."""
    if not name:
        return [_bare(value)]
    if name == "text":
        # An index has the few jobs with an error; its text is looked at row by row.
        return [_choice("text", HAS_ERROR), _Choice(0, (), HAS_ERROR & Q(error_message__icontains=value))]
    if name == "id":
        condition = _id(value.lower())
        return [_choice("id", condition) if len(value) >= _FEW else _Choice(0, (), condition)]
    if name == "took":
        return [_Choice(0, (), _span(value))]
    if name == "tag":
        if not TAG.match(value):
            raise InvalidRequest("tag: is one tag. Jobs that have two: tag:ONE tag:OTHER.")
        return [_Choice(_RANKS.index("tag"), (_tagged(value),), has_tag(value))]
    values = _values(name, value)
    if name == "state":
        return [_state(values)]
    if name in _NAMED:
        values = [one for each in values for one in _ids(name, each)]
    leads = tuple(Lead(_is_one(name, [one])) for one in dict.fromkeys(values)) if name in _RANKS else ()
    return [_Choice(_RANKS.index(name) if leads else 0, leads, _is_one(name, values))]


def _choice(rank: str, condition: Q) -> _Choice:
    return _Choice(_RANKS.index(rank), (Lead(condition),), condition)


def _state(states: Sequence[str]) -> _Choice:
    """Most jobs succeed, so any other state leaves few."""
    rank = len(_RANKS) if State.SUCCEEDED in states else _RANKS.index("rare state")
    leads = tuple(Lead(Q(state=one)) for one in dict.fromkeys(states))
    return _Choice(rank, leads, _is_one("state", states))


def _bare(word: str) -> _Choice:
    """A model, a tag, an error's code, or the beginning of an id."""
    code = _is_one("error", [word])
    leads = [Lead(Q(model=word)), _tagged(word), Lead(code)]
    condition = Q(model=word) | has_tag(word) | code
    if not _ID.match(word):
        return _Choice(_RANKS.index("word"), tuple(leads), condition)
    by_id = _id(word)
    if len(word) < _FEW:
        return _Choice(0, (), condition | by_id)
    return _Choice(_RANKS.index("id"), (*leads, Lead(by_id)), condition | by_id)


def _tagged(tag: str) -> Lead:
    return Lead(Q(labels__tag=tag), BY_TAG)


def _values(name: str, value: str) -> list[str]:
    if name not in _COLUMNS:
        near = get_close_matches(name, QUALIFIERS, 1)
        meant = f" Did you mean {near[0]}:?" if near else ""
        raise InvalidRequest(f"Unknown filter {name[:_SHOWN]}:.{meant} Known: {', '.join(QUALIFIERS)}.")
    values = value.split(",")
    if len(values) > bounds.MOST_VALUES:
        raise InvalidRequest(f"{name}: takes at most {bounds.MOST_VALUES} values.")
    if name == "state" and not set(values) <= set(STATES):
        raise InvalidRequest(f"state: is one of {', '.join(STATES)}, also several with commas.")
    return [str(bounds.number(one, name)) for one in values] if name in _NUMBERS else values


def _ids(name: str, value: str) -> list[str]:
    """Ids of the accounts or keys that are called so; of one that is gone only its id is known."""
    rows = apps.get_model(*_NAMED[name]).objects.filter(Q(pk=value) | Q(name__iexact=value))
    found = [str(pk) for pk in rows.order_by().values_list("pk", flat=True)[: bounds.MOST_VALUES + 1]]
    if len(found) > bounds.MOST_VALUES:
        raise InvalidRequest(f"{name}: more than {bounds.MOST_VALUES} are called {value[:_SHOWN]}; give an id.")
    return [value] if value in found or not found else found


def _is_one(name: str, values: Sequence[str]) -> Q:
    column = _COLUMNS[name]
    is_one = Q(**{column: values[0]}) if len(values) == 1 else Q(**{f"{column}__in": list(values)})
    # The words of the partial indexes: SQLite uses them only where they stand in the query too.
    return is_one & HAS_ERROR if name in {"error", "group"} and "" not in values else is_one


def _id(value: str) -> Q:
    if JOB_ID.match(value):
        return Q(pk=value)
    if connection.vendor == "sqlite" and _ID.match(value):
        # Its LIKE uses no index. Texts are compared byte by byte there.
        return Q(pk__gte=value, pk__lt=value[:-1] + chr(ord(value[-1]) + 1))
    return Q(pk__startswith=value)


def _span(value: str) -> Q:
    match = _SPAN.match(value)
    if match is None:
        raise InvalidRequest("took: is a duration from acceptance to end, such as >5s or <100ms.")
    limit = int(match[2]) * _MS[match[3]]
    return Q(phases__done__lt=limit) if match[1] == "<" else Q(phases__done__gte=limit)
