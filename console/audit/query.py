"""The filter grammar of the audit, one for page, API and export: ``actor:anna act:models at:<2d reason:"new ups"``."""

import difflib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from django.db.models import Q

from console import bounds
from console.accounts.acts import Act
from console.audit.models import AuditEntry
from signalbox.program.errors import InvalidRequest

KINDS: Final = (
    "account",
    "audit",
    "batch",
    "job",
    "key",
    "lane",
    "model",
    "queue",
    "repository",
    "selection",
    "subscription",
    "system",
    "token",
    "user",
    "view",
    "webhook",
    "worker",
)
RESULTS: Final = (AuditEntry.DONE, AuditEntry.REFUSED, AuditEntry.FAILED)
ACTS: Final = tuple(act.value for act in Act if not act.is_view)
_GROUPS: Final = tuple(dict.fromkeys(act.partition(".")[0] for act in ACTS))
QUALIFIERS: Final = ("at", "actor", "act", "kind", "target", "result", "reason", "via")
_WORD: Final = re.compile(r'(-?)(?:([a-z_]+):)?("[^"]*"|\S*)(?:\s+|\Z)')
_AGE: Final = re.compile(r"([<>])(\d{1,6})(m|h|d)\Z")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_SHOWN: Final = 60
"""Characters of a word that a refusal repeats."""
_AT: Final = (
    "at: is an age (at:<2h newer than, at:>3d older than), a day (at:2026-11-29) or a range of days or times in UTC"
    " (at:2026-11-01..2026-11-29, at:2026-11-29T08:00..)."
)


class AuditFilter(NamedTuple):
    """condition: what a row fulfils, but for its time. since, until: from when on it was written, and before when."""

    condition: Q
    since: datetime | None = None
    until: datetime | None = None


def parse(text: str, now: datetime) -> AuditFilter:
    """The filter a text means. Raises :class:`InvalidRequest` with a hint for what is not understood."""
    if len(text) > bounds.MOST_LETTERS:
        raise InvalidRequest(f"A filter has at most {bounds.MOST_LETTERS} characters.")
    condition, since, until, count = Q(), None, None, 0
    for minus, name, quoted in _WORD.findall(text.strip()):
        value = quoted.strip('"')
        if not (name or value):
            continue
        count += 1
        if count > bounds.MOST_WORDS:
            raise InvalidRequest(f"A filter has at most {bounds.MOST_WORDS} words.")
        if name and not value:
            raise InvalidRequest(f"{name[:_SHOWN]}: has no value.")
        if name == "at":
            if minus:
                raise InvalidRequest("at: has no opposite; at:>2h is what is older than two hours.")
            first, last = _range(value, now)
            since = max(filter(None, (since, first)), default=None)
            until = min(filter(None, (until, last)), default=None)
            continue
        one = _condition(name, value)
        condition &= ~one if minus else one
    return AuditFilter(condition, since, until)


def _condition(name: str, value: str) -> Q:
    if not name:
        return Q(target__icontains=value) | Q(actor_name__icontains=value) | _contains("reason", value)
    if name not in _CONDITIONS:
        near = difflib.get_close_matches(name, QUALIFIERS, n=1)
        hint = f"; did you mean {near[0]}:?" if near else f". Known: {', '.join(QUALIFIERS)}."
        raise InvalidRequest(f"Unknown filter {name[:_SHOWN]}:{hint}")
    values = value.split(",") if name != "reason" else [value]
    if len(values) > bounds.MOST_VALUES:
        raise InvalidRequest(f"{name}: takes at most {bounds.MOST_VALUES} values.")
    found = Q()
    for one in values:
        found |= _CONDITIONS[name](one)
    return found


def _contains(name: str, value: str) -> Q:
    """Reasons are what the operator wrote, messages what the service said."""
    return (
        Q(reason__icontains=value) | Q(message__icontains=value)
        if name == "reason"
        else Q((f"{name}__icontains", value))
    )


def _act(value: str) -> Q:
    if value in _GROUPS:
        return Q(act__startswith=f"{value}.")
    return Q(act=_known("act", value, (*ACTS, *_GROUPS)))


def _known(name: str, value: str, all_of: tuple[str, ...]) -> str:
    if value in all_of:
        return value
    near = difflib.get_close_matches(value, all_of, n=1)
    hint = f" Did you mean {near[0]}?" if near else f" Known: {', '.join(all_of)}."
    raise InvalidRequest(f"{name}: there is no {value[:_SHOWN]!r}.{hint}")


_CONDITIONS: Final[dict[str, Callable[[str], Q]]] = {
    "actor": lambda value: Q(actor_name__icontains=value),
    "act": _act,
    "kind": lambda value: Q(target_kind=_known("kind", value, KINDS)),
    "target": lambda value: Q(target__icontains=value),
    "result": lambda value: Q(result=_known("result", value, RESULTS)),
    "reason": lambda value: _contains("reason", value),
    "via": lambda value: Q(via__icontains=value),
}


def _range(value: str, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Since when, and until when: none is without end."""
    if age := _AGE.match(value):
        span = timedelta(**{_UNITS[age[3]]: int(age[2])})
        if span > timedelta(days=bounds.MOST_AGE_DAYS):
            raise InvalidRequest(f"at: goes back at most {bounds.MOST_AGE_DAYS} days.")
        return (now - span, None) if age[1] == "<" else (None, now - span)
    first, is_range, last = value.partition("..")
    if not is_range:
        last = first
    if not (first or last):
        raise InvalidRequest(_AT)
    return _instant(first) if first else None, _instant(last, is_end=True) if last else None


def _instant(text: str, *, is_end: bool = False) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return found + timedelta(days=1) if is_end and _DAY.match(text) else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(_AT) from error
