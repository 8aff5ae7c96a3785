"""Instants on the command line: RFC 3339, or so long ago, or from now."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from signalbox.program.errors import InvalidRequest

_SPAN: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhd])\Z")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def ago(text: str, now: datetime) -> datetime:
    """``2h`` before now, or the instant that is named. Raises :class:`InvalidRequest`."""
    return _instant(text, now, -1)


def ahead(text: str, now: datetime) -> datetime:
    """``2h`` from now, or the instant that is named. Raises :class:`InvalidRequest`."""
    return _instant(text, now, 1)


def _instant(text: str, now: datetime, sign: int) -> datetime:
    try:
        if span := _SPAN.match(text.removeprefix("+")):
            return now + sign * timedelta(seconds=float(span[1]) * _UNITS[span[2]])
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None else found.astimezone()
    except (ValueError, OverflowError) as error:  # or one before the year 1
        raise InvalidRequest(f"{text!r} is no time: give 30s, 10m, 2h, 3d, or 2026-01-31T12:00:00+01:00.") from error


def now() -> datetime:
    """This instant."""
    return datetime.now(UTC)
