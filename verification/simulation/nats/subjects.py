"""NATS subjects: patterns, transforms, and who listens to what."""

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a subject fits ``pattern`` (``*`` one token, ``>`` one or more at the end)."""
    if pattern == ">":
        return lambda _: True
    if "*" not in pattern:
        if not pattern.endswith(".>"):
            return pattern.__eq__
        head = pattern[:-1]
        return lambda subject: subject.startswith(head) and len(subject) > len(head)
    wanted = pattern.split(".")
    is_open = wanted[-1] == ">"
    if is_open:
        wanted.pop()
    size = len(wanted)
    fixed = [(place, token) for place, token in enumerate(wanted) if token != "*"]

    def fits(subject: str) -> bool:
        tokens = subject.split(".")
        if len(tokens) <= size if is_open else len(tokens) != size:
            return False
        return all(tokens[place] == token for place, token in fixed)

    return fits


def is_literal(pattern: str) -> bool:
    """Whether a pattern names one subject only."""
    return "*" not in pattern and ">" not in pattern


def is_subset(pattern: str, other: str) -> bool:
    """Whether everything that fits ``pattern`` also fits ``other``."""
    mine, theirs = pattern.split("."), other.split(".")
    for place, token in enumerate(theirs):
        if token == ">":
            return place < len(mine)
        if place >= len(mine) or mine[place] == ">":
            return False
        if token not in {"*", mine[place]}:
            return False
    return len(mine) == len(theirs)


def transform(src: str, dest: str) -> Callable[[str], str | None]:
    """Maps ``src`` to ``dest``; both end in ``>``, as all of ours do. None = does not apply."""
    if not (src.endswith(">") and dest.endswith(">")):
        raise NotImplementedError(f"The model knows no transform from {src} to {dest}.")
    fits, cut, head = matcher(src), len(src) - 1, dest[:-1]
    return lambda subject: head + subject[cut:] if fits(subject) else None


class Interest(Generic[T]):
    """Who listens to which pattern.

    Patterns are filed under their stem, lookups are remembered until one of those changes. Inboxes are looked up
    by all but their last token: no program here subscribes to a single answer.
    """

    def __init__(self) -> None:
        self._places: dict[T, str] = {}
        self._patterns: dict[str, dict[T, Callable[[str], bool]]] = {}
        self._routes: dict[str, dict[str, tuple[T, ...]]] = {}

    def add(self, who: T, pattern: str) -> None:
        """``who`` listens to ``pattern`` from now on."""
        place = stem(pattern)
        if "*" in place or ">" in place:
            raise NotImplementedError(f"The model knows no pattern as wide as {pattern}.")
        self._places[who] = place
        self._patterns.setdefault(place, {})[who] = matcher(pattern)
        self._routes.pop(place, None)

    def remove(self, who: T) -> None:
        """``who`` listens no more. Idempotent."""
        place = self._places.pop(who, None)
        if place is not None:
            del self._patterns[place][who]
            self._routes.pop(place, None)

    def of(self, subject: str) -> tuple[T, ...]:
        """Everybody who listens to ``subject``, in the order in which they began to."""
        place = stem(subject)
        patterns = self._patterns.get(place)
        if not patterns:
            return ()
        known = subject[: subject.rfind(".")] if subject.startswith("_INBOX") else subject
        routes = self._routes.setdefault(place, {})
        found = routes.get(known)
        if found is None:
            found = routes[known] = tuple(who for who, fits in patterns.items() if fits(subject))
        return found


def stem(subject: str) -> str:
    """What subjects and patterns are filed under: the first token, two where the first is NATS' own or an inbox."""
    first, _, rest = subject.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first[:1] in {"$", "_"} else first
