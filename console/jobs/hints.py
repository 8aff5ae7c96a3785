"""What a filter that finds no job would find with one of its words left out, or another time: a few counts, bounded."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from console.jobs import listing, query
from signalbox.program.errors import InvalidRequest

_MOST: Final = 8
"""Other filters that are tried."""
_COUNTED: Final = 1000
_WIDER: Final = ("created:today", "created:<7d")


class Hint(NamedTuple):
    """A filter that finds jobs. jobs: how many, in words. instead: what stands in the place of ``left_out``."""

    text: str
    state: str
    jobs: str
    left_out: str
    instead: str = ""


def of(text: str, state: str, now: datetime, only: Sequence[str] = ()) -> list[Hint]:
    """The filters near ``text`` that find something. state: of the list's tab, empty = all.

    only: as :func:`query.within`.
    """
    words = query.words_of(text)
    tried = [Hint(text, "", "", f"state:{state}")] if state else []
    for place, word in enumerate(words):
        others = [*words[:place], *words[place + 1 :]]
        if word.startswith("created:"):
            tried += [Hint(" ".join([*others, wider]), state, "", word, wider) for wider in _WIDER if wider != word]
        tried.append(Hint(" ".join(others), state, "", word))
    counted = [hint._replace(jobs=_count(hint, now, only)) for hint in tried[:_MOST]]
    return [hint for hint in counted if hint.jobs]


def _count(hint: Hint, now: datetime, only: Sequence[str]) -> str:
    try:
        found = listing.counts(query.within(query.parse(hint.text, now), only), most=_COUNTED)
    except InvalidRequest:
        return ""
    count = found.get(hint.state or "all", "0")
    return "" if count in {"0", "0+"} else count
