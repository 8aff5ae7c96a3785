"""Reads JSON that TensorFlow Serving's parser (RapidJSON) takes and ours does not, and says what is wrong in its words.

It takes what follows the object, a byte order mark, and ``Inf``. Clients match its messages; orjson finds the place and
the kind of an error, and this module names both as RapidJSON does. Source: RapidJSON's ``error/en.h`` and ``reader.h``.
"""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import orjson

from signalbox.front.jsonbody import Body, Bounds, NotAnObject, parse
from signalbox.program.errors import InvalidJson, InvalidRequest

MOST_SHOWN: Final = 256
"""Bytes of a value that an error shows, as in TensorFlow Serving."""
_LEAST_PLAIN: Final = 1e-6
_END_PLAIN: Final = 1e21
_MARK: Final = b"\xef\xbb\xbf"
_TRAILING: Final = "unexpected content after document"
_ENDED: Final = "unexpected end of data"
_BLANK: Final = b" \t\r\n"
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)'
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_NOT_FINITE: Final = re.compile(_STRING + rb"|NaN\b|Inf(?:inity)?\b", re.DOTALL)
_NO_VALUE: Final = "Invalid value."
_NO_NAME: Final = "Missing a name for object member."
_NO_COLON: Final = "Missing a colon after a name of object member."
_NO_COMMA_IN_OBJECT: Final = "Missing a comma or } after an object member."
_NO_COMMA_IN_LIST: Final = "Missing a comma or ] after an array element."
_EMPTY: Final = "The document is empty."
_REASONS: Final = {
    "unexpected character, expected a JSON value": _NO_VALUE,
    "unexpected character, expected a string key": _NO_NAME,
    "unexpected character, expected ':' after key": _NO_COLON,
    "unexpected character, expected ',' or '}'": _NO_COMMA_IN_OBJECT,
    "unexpected character, expected ',' or ']'": _NO_COMMA_IN_LIST,
    "no digit after sign": _NO_VALUE,
    "no digit after decimal point": "Miss fraction part in number.",
    "no digit after exponent sign": "Miss exponent in number.",
    "number is infinity when parsed as double": "Number too big to be stored in double.",
    "unexpected control character in string": "Invalid encoding in string.",
}


def parse_as_served(body: bytes, bounds: Bounds) -> Body:
    """Parse a body as :func:`signalbox.front.jsonbody.parse`, for a body of a client of TensorFlow Serving."""
    try:
        return _parse(body, bounds)
    except NotAnObject as error:
        raise InvalidRequest(f"JSON Value: {shown(error.value)} Is not object. {error.public_message}") from error


def _parse(body: bytes, bounds: Bounds) -> Body:
    try:
        return parse(body, bounds)
    except InvalidJson as error:
        if "offset" not in error.facts:  # a bound of ours, and no fault of the JSON
            raise
        return _parse_again(body, bounds, error)


def _parse_again(body: bytes, bounds: Bounds, first: InvalidJson) -> Body:
    """Parse what RapidJSON would take. Raises :class:`InvalidJson` in its words."""
    if not body:
        raise InvalidJson("JSON Parse error: The document is empty", offset=0) from first
    text = body.removeprefix(_MARK)
    finite = _NOT_FINITE.sub(_as_number, text) if b"NaN" in text or b"Inf" in text else text
    try:
        orjson.loads(finite)
    except orjson.JSONDecodeError as error:
        at = _bytes_before(finite, error.pos)
        if error.msg != _TRAILING:
            reason, at = _reason(error.msg, text, at)
            at += len(body) - len(text)
            raise InvalidJson(f"JSON Parse error: {reason} at offset: {at}", offset=at) from first
        text = text[:at]
    return parse(_NOT_FINITE.sub(_as_python_has_it, text), bounds)


def _as_number(found: re.Match[bytes]) -> bytes:
    """A number as long as the token, so that offsets stay; strings as they are."""
    token = found[0]
    return token if token[:1] == b'"' else b"0." + b"0" * (len(token) - 2)


def _as_python_has_it(found: re.Match[bytes]) -> bytes:
    return b"Infinity" if found[0] == b"Inf" else found[0]


def _bytes_before(text: bytes, characters: int) -> int:
    if text.isascii():
        return characters
    return len(text.decode(errors="replace")[:characters].encode())


def _reason(message: str, text: bytes, at: int) -> tuple[str, int]:
    """RapidJSON's words for orjson's message, and its offset. at: orjson's, in bytes."""
    if message == _ENDED:
        return _missing(text), len(text)
    if message == "input data is empty":
        return _EMPTY, len(text)
    if message.startswith("trailing comma"):
        after = len(text) - len(text[at + 1 :].lstrip(_BLANK))
        return (_NO_VALUE if text[after : after + 1] == b"]" else _NO_NAME), after
    if message.startswith("invalid literal"):
        word = message.rpartition("expected ")[2].strip("'").encode()
        return _NO_VALUE, at + next((n for n, c in enumerate(word) if text[at + n : at + n + 1] != word[n : n + 1]), 0)
    if message.startswith("number with leading zero"):
        at += 2 if text[at : at + 1] == b"-" else 1
        return _missing(text[:at]), at
    if message.startswith("invalid escaped sequence"):
        is_hex = text[at + 1 : at + 2] == b"u"
        reason = "Incorrect hex digit after \\u escape in string." if is_hex else "Invalid escape character in string."
        return reason, at
    if "surrogate in string" in message:
        return "The surrogate pair in string is invalid.", at
    if _REASONS.get(message) == _NO_VALUE and not text[:at].strip(_BLANK) and text[at : at + 1] in b"}],:":
        return _EMPTY, at
    return _REASONS.get(message, message), at


def _missing(text: bytes) -> str:
    """What must follow ``text``, the beginning of a document."""
    bare = _STRINGS.sub(_emptied, text)
    if bare.count(b'"') % 2:
        return "Missing a closing quotation mark in string."
    brackets = bare.translate(None, bytes(set(range(256)) - set(b"[]{}")))
    while (less := brackets.replace(b"[]", b"").replace(b"{}", b"")) != brackets:
        brackets = less
    last = bare.rstrip(_BLANK)[-1:]
    is_object = brackets[-1:] == b"{"
    if last in b"[:" or (last == b"," and not is_object) or last in b"-+.":
        return _NO_VALUE
    if last in b"{,":
        return _NO_NAME
    if not is_object:
        return _NO_COMMA_IN_LIST
    is_name = last == b'"' and bare.rstrip(_BLANK)[:-2].rstrip(_BLANK)[-1:] in b"{,"
    return _NO_COLON if is_name else _NO_COMMA_IN_OBJECT


def _emptied(found: re.Match[bytes]) -> bytes:
    """A string without its contents; one without an end stays without it."""
    return b'"' + found[1]


def shown(value: Any) -> str:
    """The beginning of a JSON value, as TensorFlow Serving shows it in an error."""
    parts: list[str] = []
    size = 0
    for part, is_event in _written(value, 0):
        if is_event and size >= MOST_SHOWN:
            break
        parts.append(part)
        size += len(part)
    return "".join(parts)


def _written(value: Any, level: int) -> Iterator[tuple[str, bool]]:
    """Pieces of a value, lists in one line and objects in several, and whether each begins a value."""
    if type(value) is list:
        yield "[", True
        for index, item in enumerate(value):
            if index:
                yield ", ", True
            yield from _written(item, level + 1)
        yield "]", True
    elif type(value) is dict:
        yield "{", True
        for index, (name, item) in enumerate(value.items()):
            yield ("," if index else "") + "\n" + "    " * (level + 1) + _scalar(name), True
            yield ": ", False
            yield from _written(item, level + 1)
        yield ("\n" + "    " * level if value else "") + "}", True
    else:
        yield _scalar(value), True


def _scalar(value: Any) -> str:
    if type(value) is float:
        return _decimal(value) if math.isfinite(value) else json.dumps(value)
    if type(value) is int:
        return str(value)
    return orjson.dumps(value[:MOST_SHOWN] if type(value) is str else value).decode()


def _decimal(value: float) -> str:
    """A double as RapidJSON writes it: shortest, with an exponent only where there are very many zeros."""
    if value and not _LEAST_PLAIN <= abs(value) < _END_PLAIN:
        digits, _, exponent = repr(value).partition("e")
        return f"{digits}e{int(exponent)}"
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def kind(value: Any) -> str:
    """The JSON type of a value, as TensorFlow Serving names it."""
    if type(value) is bool:
        return str(value)
    return _KINDS.get(type(value), "Number")


_KINDS: Final = {type(None): "Null", dict: "Object", list: "Array", str: "String"}
