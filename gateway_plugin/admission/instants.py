"""Reads instants that callers give."""

import re
from datetime import UTC, datetime
from typing import Any, Final

from signalbox.program.errors import InvalidRequest

_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})\Z", re.ASCII
)
_FIRST_YEAR: Final = 2000


def read_instant(name: str, given: Any) -> float:
    """An RFC 3339 instant with its offset from UTC, in UTC unix seconds. Raises :class:`InvalidRequest`."""
    if type(given) is str and _RFC3339.match(given):
        try:
            found = datetime.fromisoformat(given.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        else:
            if found.year >= _FIRST_YEAR:
                return found.timestamp()
    raise InvalidRequest(
        f'"{name}" must be an instant with its offset from UTC, such as "2030-01-31T09:30:00Z" or '
        '"2030-01-31T10:30:00+01:00" (in a URL, + is written %2B), of the year 2000 or later.',
        field=name,
    )
