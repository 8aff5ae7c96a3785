"""Reads nats-server's configuration language: blocks, lists, includes, ``$VARIABLES``, ``#`` and ``//`` comments.

Source: https://docs.nats.io/running-a-nats-service/configuration. Names are given in lower case, as the server takes
them in any; a value is text, a list or a mapping, never converted: rules say what ``on`` or ``2MB`` mean to them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from signalbox.program.errors import Misconfigured

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
_TOKEN: Final = re.compile(
    r"""\s+ | \#[^\n]* | //[^\n]* | (?P<quoted> "(?:[^"\\]|\\.)*" | '[^']*' )
    | (?P<url> \w+://[^\s,;\]}]+ ) | (?P<mark> [{}\[\],:=;] )
    | (?P<word> (?: (?!//) [^\s{}\[\],:=;\#"'] )+ (?: :\d+ )? )""",
    re.VERBOSE,
)
_DEEPEST: Final = 32


class Conf:
    """One parsed file. ``variables``: names of those it takes from the environment."""

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
    return Conf(_read(path, 0))


def parse(text: str, folder: Path = Path(), depth: int = 0) -> Conf:
    """A configuration given as text; ``include`` is looked for in ``folder``."""
    return Conf(_block(_tokens(text), folder, depth, is_top=True))


def _read(path: Path, depth: int) -> "dict[str, Value]":
    if depth > _DEEPEST:
        raise Misconfigured(f"{path} is included too deep.")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}.") from error
    return parse(text, path.parent, depth).values


def _tokens(text: str) -> Iterator[tuple[str, str]]:
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
    yield "end", ""


def _block(tokens: Iterator[tuple[str, str]], folder: Path, depth: int, *, is_top: bool = False) -> "dict[str, Value]":
    values: dict[str, Value] = {}
    for kind, text in tokens:
        if kind == "end" or text == "}":
            if (kind == "end") is not is_top:
                raise Misconfigured("A brace is missing in the NATS configuration.")
            return values
        if kind == "mark":
            continue  # commas and semicolons between entries
        if text.lower() == "include":
            values |= _read(folder / next(tokens)[1], depth + 1)
        else:
            values[text.lower()] = _value(tokens, folder, depth)
    return values


def _value(tokens: Iterator[tuple[str, str]], folder: Path, depth: int) -> "Value":
    if depth > _DEEPEST:
        raise Misconfigured("The NATS configuration is nested too deep.")
    for kind, text in tokens:
        if kind == "end":
            break
        if text in {":", "="} and kind == "mark":
            continue
        if kind == "mark" and text == "{":
            return _block(tokens, folder, depth + 1)
        if kind == "mark" and text == "[":
            return _list(tokens, folder, depth + 1)
        if kind == "mark":
            break
        return text
    raise Misconfigured("A value is missing in the NATS configuration.")


def _list(tokens: Iterator[tuple[str, str]], folder: Path, depth: int) -> "list[Value]":
    found: list[Value] = []
    for kind, text in tokens:
        if kind == "mark" and text == "]":
            return found
        if kind == "end" or depth > _DEEPEST:
            break
        if kind == "mark" and text == "{":
            found.append(_block(tokens, folder, depth + 1))
        elif kind == "mark" and text == "[":
            found.append(_list(tokens, folder, depth + 1))
        elif kind == "value":
            found.append(text)
    raise Misconfigured("A bracket is missing in the NATS configuration.")
