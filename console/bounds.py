"""Upper bounds of what the console accepts: numbers, words, depth. Each is defined here, once.

The size of a body is bounded in :mod:`console.web.bodylimit`.
"""

import re
from typing import Final

from django.conf import settings

from signalbox.front import jsonbody
from signalbox.program.errors import InvalidRequest

MOST_NUMBER: Final = 2**63 - 1
"""Of a version, a fencing token, a sequence and a row: what a column, and NATS, count to."""
MOST_COUNT: Final = 2**31 - 1
"""Of requests and of seconds, in a key's rate and quota: what a column, and a gateway, count to."""
MOST_AGE_DAYS: Final = 36_500
"""How far back a filter looks. No calendar has a day a million days ago."""
MOST_LETTERS: Final = 2000
"""Of a filter, before it is taken apart."""
MOST_WORDS: Final = 20
MOST_VALUES: Final = 10
"""Of one word of a filter: the database gets all of them in one statement, whose depth it bounds too."""
MOST_ELEMENTS: Final = 20_000
"""Of a JSON body, about: each becomes an object of its own. How deep it may be is :data:`jsonbody.MAX_DEPTH`."""
_DIGITS: Final = re.compile(r"[0-9]{1,19}\Z")


def number(text: str, what: str) -> int:
    """The whole number that a text is, from 0 to :data:`MOST_NUMBER`. Raises :class:`InvalidRequest`."""
    if not _DIGITS.match(text) or int(text) > MOST_NUMBER:
        raise InvalidRequest(f"{what}: is a number from 0 to {MOST_NUMBER}.")
    return int(text)


def body() -> jsonbody.Bounds:
    """Of a JSON body."""
    return jsonbody.Bounds(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, MOST_ELEMENTS)
