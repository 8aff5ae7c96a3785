"""Reads nats-server's configuration language: blocks, lists, includes, ``$VARIABLES``, ``#`` and ``//`` comments.

Source: https://docs.nats.io/running-a-nats-service/configuration. Names are given in lower case, as the server takes
them in any; a value is text, a list or a mapping, never converted: rules say what ``on`` or ``2MB`` mean to them.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from signalbox.program.errors import Misconfigured

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
Token: TypeAlias = tuple[str, str]
"""``mark`` or ``value``, and its text; the last one is a mark without text."""
_TOKEN: Final = re.compile(
    r"""\s+ | \#[^\n]* | //[^\n]* | (?P<quoted> "(?:[^"\\]|\\.)*" | '[^']*' )
    | (?P<url> \w+://[^\s,;\]}]+ ) | (?P<mark> [{}\[\],:=;] )
    | (?P<word> (?: (?!//) [^\s{}\[\],:=;\#"'] )+ (?: :\d+ )? )""",
    re.VERBOSE,
)
_BETWEEN: Final = (("mark", ","), ("mark", ";"))
_BEFORE_VALUE: Final = (("mark", ":"), ("mark", "="))


class Conf:
    """One parsed file, with what it includes."""

    def __init__(self, values: "dict[str, Value]") -> None:
        self.values = values

    def text(self, *path: str) -> str:
        """The value under a path of names, or an empty text."""
        found = self.get(*path)
        return found if isinstance(found, str) else ""

    def block(self, *path: str) -> "Mapping[str, Value]":
        """The block under a path, or an empty one."""
        found = self.get(*path)
        return found if isinstance(found, dict) else {}

    def get(self, *path: str) -> "Value | None":
        """Whatever is under a path."""
        at: Value | None = self.values
        for name in path:
            at = at.get(name) if isinstance(at, dict) else None
        return at


def read(path: Path) -> Conf:
    """The file with what it includes. Raises :class:`Misconfigured` naming the file that cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}.") from error
    return parse(text, path.parent)


def parse(text: str, folder: Path = Path()) -> Conf:
    """A configuration given as text; ``include`` is looked for in ``folder``."""
    try:
        return Conf(_block(_tokens(text), folder, end=("mark", "")))
    except RecursionError as error:
        raise Misconfigured("The NATS configuration is nested too deep, or includes itself.") from error


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.end() == at:
            raise Misconfigured(f"Not a NATS configuration at {text[at : at + 20]!r}.")
        at = found.end()
        if found.lastgroup == "quoted":
            yield "value", found[0][1:-1]
        elif found.lastgroup is not None:
            yield ("mark" if found.lastgroup == "mark" else "value"), found[0]
    yield "mark", ""


def _block(tokens: Iterator[Token], folder: Path, end: Token) -> "dict[str, Value]":
    values: dict[str, Value] = {}
    for token in iter(partial(next, tokens), end):
        kind, name = token
        if token in _BETWEEN:
            continue
        if kind == "mark":
            raise Misconfigured("A name or a brace is missing in the NATS configuration.")
        first = next(tokens)
        if name.lower() == "include":
            values |= read(folder / first[1]).values
        else:
            values[name.lower()] = _value(next(tokens) if first in _BEFORE_VALUE else first, tokens, folder)
    return values


def _value(first: Token, tokens: Iterator[Token], folder: Path) -> "Value":
    """The value that begins with ``first``."""
    if first == ("mark", "{"):
        return _block(tokens, folder, end=("mark", "}"))
    if first == ("mark", "["):
        members = iter(partial(next, tokens), ("mark", "]"))
        return [_value(member, tokens, folder) for member in members if member not in _BETWEEN]
    kind, text = first
    if kind == "mark":
        raise Misconfigured("A value or a bracket is missing in the NATS configuration.")
    return text
