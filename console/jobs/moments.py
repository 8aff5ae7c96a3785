"""When a job was created, as a filter says it: an age, a day, an instant, a range of them. In UTC. Pure."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from console import bounds
from signalbox.program.errors import InvalidRequest

Bound = tuple[str, datetime]
"""``gte`` or ``lt``, and an instant."""
_AGE: Final = re.compile(r"([<>]?)(\d{1,6})(s|m|h|d)\Z")
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DAY: Final = timedelta(days=1)
_DAYS_BACK: Final = {"today": 0, "yesterday": 1}
_HELP: Final = (
    "created: is an age such as <2h (newer than) or >3d (older than), a day such as today, yesterday or 2026-11-01, an"
    " instant such as >2026-11-01T12:00 (later than), or a range such as 2026-11-01..2026-11-05; all in UTC."
)


class _Moment(NamedTuple):
    """From its beginning to its end: a day, a minute or a second."""

    start: datetime
    end: datetime


def bounds_of(value: str, now: datetime) -> list[Bound]:
    """The bounds that a value means. Raises :class:`InvalidRequest`."""
    if (age := _AGE.match(value)) is not None:
        return [_age(age, now)]
    first, dots, last = value.partition("..")
    if dots:
        if not (first or last):
            raise InvalidRequest(_HELP)
        return [
            *([("gte", _moment(first, now).start)] if first else []),
            *([("lt", _moment(last, now).end)] if last else []),
        ]
    sign = value[:1] if value[:1] in {"<", ">"} else ""
    moment = _moment(value.removeprefix(sign), now)
    if sign == ">":
        is_day = moment.end - moment.start == _DAY
        return [("gte", moment.end if is_day else moment.start)]
    return [("lt", moment.start)] if sign else [("gte", moment.start), ("lt", moment.end)]


def _age(match: re.Match[str], now: datetime) -> Bound:
    age_s = int(match[2]) * _SECONDS[match[3]]
    if age_s > bounds.MOST_AGE_DAYS * _SECONDS["d"]:
        raise InvalidRequest(f"created: goes back at most {bounds.MOST_AGE_DAYS} days.")
    return "lt" if match[1] == ">" else "gte", now - timedelta(seconds=age_s)


def _moment(text: str, now: datetime) -> _Moment:
    if text in _DAYS_BACK:
        start = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - _DAY * _DAYS_BACK[text]
        return _Moment(start, start + _DAY)
    match = _STAMP.match(text)
    if match is None:
        raise InvalidRequest(_HELP)
    try:
        start = datetime.fromisoformat(text)
        start = start.replace(tzinfo=UTC) if start.tzinfo is None else start.astimezone(UTC)
        length = _DAY if match[1] is None else timedelta(minutes=1) if match[2] is None else timedelta(seconds=1)
        return _Moment(start, start + length)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest("created: there is no such day or time.") from error
