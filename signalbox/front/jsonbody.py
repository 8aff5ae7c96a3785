"""Parses a JSON body once, within bounds that hold before and while it is read; an ambiguous body is refused.

:mod:`gateway_plugin.codec.inputs` interprets it. The bounds are chosen in docs/adr/0126.
"""

import json
import re
from collections import Counter
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import orjson

from signalbox.program.errors import InvalidJson, InvalidRequest, TooLarge

MAX_DEPTH: Final = 32
"""Deepest nesting of lists and objects in a body; the parsers themselves stop at about a thousand."""
NAME_ELEMENTS: Final = 4
"""A name in an object takes as much memory, once parsed, as so many array elements (docs/adr/0126)."""
MAX_RATIO: Final = 100
"""A compressed body may become so many times its size, or ``FREE_BYTES`` if that is more."""
FREE_BYTES: Final = 1024 * 1024
_NO_MARK: Final = bytes(set(range(256)) - set(b'[]{}:,"rl'))
"""Also the letters without which there is no ``true`` and no ``false``: numbers have neither."""
_NO_BRACKET: Final = b':,"rl'
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NAME_END: Final = re.compile(rb'"[ \t\r\n]*:')
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Matches also a string without an end, so that no text is searched twice."""
_MOST_DIGITS: Final = 20
"""Most digits of a whole number; a longer one is read as the nearest float64, as JavaScript does."""
_KINDS: Final = {bool: "a boolean", str: "a string", dict: "an object", list: "a list"}


class Bounds(NamedTuple):
    """What one body may hold: bytes of JSON and, about, array elements, of which a name in an object counts as four."""

    body_bytes: int
    elements: int


class Body(msgspec.Struct, frozen=True):
    """A parsed body. is_plain: nothing below its top level is a string, ``true`` or ``false``."""

    doc: Any
    is_plain: bool


class NotAnObject(InvalidRequest):
    """The body is JSON, but ``value`` is no object."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"The body must be a JSON object, not {kind_of(value)}.")
        self.value = value


def parse(body: bytes, bounds: Bounds) -> Body:
    """The JSON object in ``body``; ``NaN``, ``Infinity`` and ``-Infinity`` are numbers in it.

    Raises :class:`TooLarge`, and :class:`InvalidJson` for what is nested too deeply, before anything is parsed;
    :class:`InvalidJson` with the offset (in characters) of what is wrong, or for what names something twice; and
    :class:`NotAnObject`.
    """
    if len(body) > bounds.body_bytes:
        raise TooLarge(
            f"The body has {len(body)} bytes; at most {bounds.body_bytes} are taken.",
            bound="bytes",
            limit_bytes=bounds.body_bytes,
        )
    marks = body.translate(None, _NO_MARK)  # a pass over all of it; what is counted then is short
    elements = len(marks) - len(marks.translate(None, b",["))
    if elements > bounds.elements:
        raise TooLarge(
            f"The body has about {elements} array elements; at most {bounds.elements} are taken.",
            bound="elements",
            limit_elements=bounds.elements,
        )
    colons = marks.count(b":")
    room = (bounds.elements - elements) // NAME_ELEMENTS
    if colons > room:
        _require_few_names(body, room, elements)
    _require_shallow(body, marks.translate(_ONE_KIND, _NO_BRACKET))
    doc = _parse(body)
    if type(doc) is not dict:
        raise NotAnObject(doc)
    names = _require_distinct_names(doc, body, colons)
    return Body(doc, _is_plain(doc, body, marks, names))


def _require_few_names(body: bytes, most: int, elements: int) -> None:
    """Raise :class:`TooLarge` for too many quotation marks that a colon follows: names, but for some in strings."""
    if next(islice(_NAME_END.finditer(body), most, None), None) is not None:
        raise TooLarge(
            f"The objects of the body have more than the {most} names for which there is memory beside about "
            f'{elements} array elements; send the inputs as columns ("inputs"), or in several requests.',
            bound="names",
            limit_names=most,
        )


def _require_shallow(body: bytes, brackets: bytes) -> None:
    """Raise :class:`InvalidJson` for lists and objects too deep in one another. Strings hold brackets that are none."""
    if not _may_be_deep(brackets):
        return
    brackets = _STRING.sub(b"", body).translate(None, _NO_MARK).translate(_ONE_KIND, _NO_BRACKET)
    steps = np.where(np.frombuffer(brackets, np.uint8) == ord("["), np.int8(1), np.int8(-1))
    if steps.size and int(steps.cumsum(dtype=np.int32).max()) > MAX_DEPTH:
        raise InvalidJson(
            f"The body is nested more than {MAX_DEPTH} levels deep.", bound="depth", limit_depth=MAX_DEPTH
        )


def _may_be_deep(brackets: bytes) -> bool:
    """Whether these brackets, ``[`` and ``]``, outlast the bound when innermost pairs go level by level.

    True also where a string holds brackets that pair with nothing.
    """
    if len(brackets) <= 2 * MAX_DEPTH:
        return False
    for _ in range(MAX_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _inside(value: Any) -> list[Any]:
    """The lists and objects directly in one."""
    values = value.values() if type(value) is dict else value
    return [inner for inner in values if type(inner) is list or type(inner) is dict]


def _is_plain(doc: dict[str, Any], body: bytes, marks: bytes, names: int) -> bool:
    """Whether the body is plain, judged by its quotation marks: two for each name, two or more for any other string."""
    top = sum(type(value) is str for value in doc.values())
    if marks.count(b'"') > 2 * (names + top):
        return False
    return not (b"r" in marks and b"true" in body) and not (b"l" in marks and b"false" in body)


def _require_distinct_names(doc: dict[str, Any], body: bytes, colons: int) -> int:
    """How many names the objects have. colons: in the body. Raises :class:`InvalidJson` if one gives a name twice:
    readers differ on which counts.

    Parsing kept one of them. As soon as the names that were kept are as many as the text has colons,
    nothing was dropped; mostly that is so without looking into a single list.
    """
    level: list[Any] = [doc]
    names = 0
    while level:
        names += sum(len(value) for value in level if type(value) is dict)
        if names == colons:
            return names
        level = [inner for value in level for inner in _inside(value)]
    if names != len(_NAME_END.findall(body)):  # not only colons in strings: read again, exactly
        _parse_slowly(body)
    return names


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body and b"Infinity" not in body:
            raise _not_json(error.msg, error.pos) from error
    return _parse_slowly(body)


def _parse_slowly(body: bytes) -> Any:
    """Parse with Python's own parser, which knows ``NaN`` and shows names given twice."""
    try:
        text = body.decode()
        doc = json.loads(text, object_pairs_hook=_distinct, parse_int=_whole_number)
        if "\\u" in text:
            json.dumps(doc, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _not_json(error.msg, error.pos) from error
    except UnicodeDecodeError as error:
        raise _not_json("not valid UTF-8", error.start) from error
    except UnicodeEncodeError as error:
        raise _not_json("a lone surrogate in a string", 0) from error
    except (RecursionError, ValueError) as error:
        raise _not_json("nested too deeply, or a number that is too large", 0) from error
    return doc


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise InvalidJson(f"An object gives the name {twice[:60]!a} twice.", bound="names")
    return found


def _whole_number(text: str) -> int | float:
    if len(text) <= _MOST_DIGITS:
        return int(text)
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError(text[:_MOST_DIGITS])
    return value


def _not_json(reason: str, offset: int) -> InvalidJson:
    return InvalidJson(f"JSON Parse error: {reason} at offset: {offset}", offset=offset)


def kind_of(value: Any) -> str:
    """What a JSON value is, in words, never the value itself where it could be long."""
    if value is None:
        return "null"
    if type(value) in {int, float}:
        return f"the number {value}"
    return _KINDS.get(type(value), "something else")
