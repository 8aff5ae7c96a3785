"""The fields of a signature's inputs: what they hold at first, and the request that they make."""

import json
import re
from collections.abc import Mapping
from math import prod
from typing import Any, Final, NamedTuple

from signalbox.program.errors import InvalidRequest
from signalbox.wire.modeldocs import Signature, TensorSpec

MOST_LETTERS: Final = 1024 * 1024
"""Of all fields together."""
MOST_ZEROS: Final = 1_000_000
_MOST_PREFILLED: Final = 4096
"""Elements of an example that a field holds; a larger tensor is left empty, and is zeros."""
_TEXT: Final = "text"
_NUMBERS: Final = "numbers"
_JSON: Final = "json"
_DEEPEST: Final = 64
"""Lists and objects within each other; no tensor has as many dimensions."""
_NOT_BRACKETS: Final = re.compile(r"[^\[\]{}]+")
_BETWEEN: Final = re.compile(r"[\s,;]+")
_WORDS: Final = {"true": True, "false": False}


class Field(NamedTuple):
    """One input. kind: ``text`` (a line each), ``numbers``, or ``json``. value: what the field holds."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    kind: str
    value: str
    hint: str


def fields(signature: Signature, given: Mapping[str, str] | None = None) -> list[Field]:
    """The fields of a signature, with what was given before, or an example."""
    return [
        _field(name, spec, None if given is None else given.get(name, ""), is_optional=name in signature.defaults)
        for name, spec in signature.inputs.items()
    ]


def request(name: str, signature: Signature, given: Mapping[str, str]) -> dict[str, Any]:
    """The body of the call. Raises :class:`InvalidRequest` that names the input."""
    if sum(map(len, given.values())) > MOST_LETTERS:
        raise InvalidRequest(f"The inputs have more than {MOST_LETTERS} letters together: use curl for that many.")
    inputs: dict[str, Any] = {}
    for field in fields(signature, given):
        if field.value.strip():
            inputs[field.name] = _value(field)
        elif field.name not in signature.defaults:
            inputs[field.name] = _empty(field)
    return {"signature_name": name, "inputs": inputs}


def _field(name: str, spec: TensorSpec, given: str | None, *, is_optional: bool) -> Field:
    rank = None if spec.shape is None else len(spec.shape)
    kind = _JSON if rank is None or rank > 1 else _TEXT if spec.dtype == "string" else _NUMBERS
    size = prod(_sizes(spec.shape))
    hint = {
        _TEXT: "One text a line." if rank else "A text.",
        _NUMBERS: "Numbers, with commas or spaces between them." if rank else "A number.",
        _JSON: 'Nested lists, as JSON; bytes as {"b64": "..."}.',
    }[kind]
    if is_optional:
        hint += " Empty: left out."
    elif spec.dtype != "string":
        hint += f" Empty: zeros of shape {list(_sizes(spec.shape))}."
    value = given if given is not None else "" if size > _MOST_PREFILLED else _example(kind, spec)
    return Field(name, spec.dtype, spec.shape, kind, value, hint)


def _example(kind: str, spec: TensorSpec) -> str:
    one: Any = "text" if spec.dtype == "string" else 1.0 if "float" in spec.dtype else spec.dtype == "bool" or 1
    if kind == _JSON:
        return json.dumps(_filled(_sizes(spec.shape), one), separators=(",", ":"))
    text = one if isinstance(one, str) else json.dumps(one)
    between = "\n" if kind == _TEXT else ", "
    return between.join([text] * prod(_sizes(spec.shape)))


def _value(field: Field) -> Any:
    text = field.value.strip()
    try:
        if field.kind == _JSON:
            return json.loads(_shallow(text))
        if field.kind == _TEXT:
            return text.splitlines() if field.shape else text
        numbers = [_number(word) for word in _BETWEEN.split(text)]
    except ValueError:
        asked = "JSON" if field.kind == _JSON else "numbers"
        raise InvalidRequest(f"{field.name}: is {asked}, and this cannot be read as such.") from None
    if field.shape:
        return numbers
    if len(numbers) != 1:
        raise InvalidRequest(f"{field.name}: is one number.")
    return numbers[0]


def _shallow(text: str) -> str:
    """The text, if it can be parsed and written again. Raises :class:`ValueError`; brackets in strings count too."""
    depth = 0
    for bracket in _NOT_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEEPEST:
            raise ValueError(depth)
    return text


def _number(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    found = json.loads(word)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    raise ValueError(word)


def _empty(field: Field) -> Any:
    if field.dtype == "string":
        raise InvalidRequest(f"{field.name}: is a text, and nothing was given.")
    sizes = _sizes(field.shape)
    if prod(sizes) > MOST_ZEROS:
        raise InvalidRequest(f"{field.name}: is too large to be filled with zeros; use curl.")
    return _filled(sizes, 0.0 if "float" in field.dtype else False if field.dtype == "bool" else 0)


def _sizes(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """What is free is one."""
    return tuple(1 if size == -1 else size for size in shape or ())


def _filled(sizes: tuple[int, ...], one: Any) -> Any:
    found = one
    for size in reversed(sizes):
        found = [found] * size
    return found
