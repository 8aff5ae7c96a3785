"""Says what is wrong with the inputs of a predict request in TensorFlow Serving's words, which its clients match.

Only asked once an input was refused; it looks in TensorFlow Serving's order, so that it names the same place. Where
TensorFlow Serving would have taken the input it has nothing to say. Source: TensorFlow Serving's ``json_tensor.cc``.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

from gateway_plugin.codec import dtypes
from gateway_plugin.codec.serving.rapidjson import kind, shown
from gateway_plugin.codec.serving.regular import leading, leading_rows, leading_whole
from gateway_plugin.codec.values import is_base64

_INTEGERS: Final = {
    "int8": (-(2**31), 2**31),
    "int16": (-(2**31), 2**31),
    "uint8": (-(2**31), 2**31),
    "int32": (-(2**31), 2**31),
    "int64": (-(2**63), 2**63),
    "uint32": (0, 2**32),
    "uint64": (0, 2**64),
}
"""The range of whole numbers that are read for a dtype: narrow ones are read as int32."""
_NUMBERS: Final = frozenset({int, float})
_PLAIN: Final = {"bool": frozenset({bool}), "string": frozenset({str}), "float32": _NUMBERS, "float64": _NUMBERS}
_STATUS: Final = "INVALID_ARGUMENT: "


class _Mismatch(Exception):
    """Where TensorFlow Serving stops, in its words."""


def of_request(doc: Mapping[str, Any], wanted: Mapping[str, str]) -> str:
    """What is wrong, or empty. wanted: dtypes of the signature's inputs, by name."""
    try:
        if "instances" in doc:
            if "inputs" in doc:
                return (
                    f"{_value(doc)} Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist"
                )
            return _of_rows(doc, doc["instances"], wanted)
        return _of_columns(doc["inputs"], wanted) if "inputs" in doc else ""
    except _Mismatch as found:
        return str(found)


def _is_object(value: Any) -> bool:
    return type(value) is dict and not is_base64(value)


def _of_rows(doc: Mapping[str, Any], rows: Any, wanted: Mapping[str, str]) -> str:
    if type(rows) is not list:
        return f"{_value(doc)} Expecting 'instances' to be an list/array"
    if not rows:
        return f"{_value(doc)} No values in 'instances' array"
    if type(rows[0]) is not dict and len(wanted) > 1:
        return (
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    if _is_object(rows[0]):
        return _of_objects(rows, wanted)
    name = next(iter(wanted))
    known: dict[str, tuple[int, tuple[int, ...]]] = {}
    good = _good_rows(rows, rows[0], wanted[name])
    if good:
        _check_item(rows[0], name, wanted, known)
    for index, row in enumerate(rows[good:], good):
        if _is_object(row):
            return f"Expecting value/list but got object at item {index} of input list"
        try:
            _check_item(row, name, wanted, known)
        except _Mismatch as found:
            return f"Failed to process element: {index} of 'instances' list. Error: {_STATUS}{found}"
    return ""


def _good_rows(rows: Sequence[Any], first: Any, dtype: str) -> int:
    """How many rows, from the first on, have its shape and elements of the dtype that need no closer check."""
    good, elements, size = leading_rows(rows, _shape(first))
    return min(good, _leading(elements, dtype) // size) if size else good


def _of_objects(rows: Sequence[Any], wanted: Mapping[str, str]) -> str:
    known: dict[str, tuple[int, tuple[int, ...]]] = {}
    good = leading(rows, (dict,))
    good = next((index for index, row in enumerate(rows[:good]) if row.keys() != wanted.keys()), good)
    for name, dtype in wanted.items() if good else ():
        good = min(good, _good_rows([row[name] for row in rows[:good]], rows[0][name], dtype))
        if not good:
            break
    for name in wanted if good else ():
        _check_item(rows[0][name], name, wanted, known)
    for index, row in enumerate(rows[good:], good):
        if not _is_object(row):
            return f"Expecting object but got list at item {index} of input list"
        for name, item in row.items():
            try:
                _check_item(item, name, wanted, known)
            except _Mismatch as found:
                return (
                    f"Failed to process element: {index} key: {_short(name)} of 'instances' list. "
                    f"Error: {_STATUS}{found}"
                )
        if row.keys() != wanted.keys():
            return (
                f"Failed to process element: {index} of 'instances' list. JSON object: {shown(row)} "
                f"keys must be equal to: {','.join(sorted(wanted))}"
            )
    return ""


def _of_columns(value: Any, wanted: Mapping[str, str]) -> str:
    if not _is_object(value):
        if len(wanted) > 1:
            return (
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        _count(value, 0, _shape(value), next(iter(wanted.values())))
        return ""
    for name, dtype in wanted.items():
        if name not in value:
            return f"Missing named input: {name} in 'inputs' object."
        _count(value[name], 0, _shape(value[name]), dtype)
    return ""


def _check_item(item: Any, name: str, wanted: Mapping[str, str], known: dict[str, tuple[int, tuple[int, ...]]]) -> None:
    """Raise for an item of a row that is wrong, or differs in size or shape from those of the rows before."""
    if name not in wanted:
        raise _Mismatch(f"JSON object: does not have named input: {_short(name)}")
    shape = _shape(item)
    count = _count(item, 0, shape, wanted[name])
    before = known.setdefault(name, (count, shape))
    if before[0] != count:
        raise _Mismatch(f"Expecting tensor size: {before[0]} but got: {count}")
    if before[1] != shape:
        raise _Mismatch(f"Expecting shape {_listed(before[1])} but got: {_listed(shape)}")


def _shape(value: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while type(value) is list:
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _count(value: Any, level: int, shape: tuple[int, ...], dtype: str) -> int:
    """The elements of a tensor of this shape. Raises where the lists do not make one, or an element does not fit."""
    if type(value) is not list:
        if level != len(shape):
            raise _Mismatch(
                f"{_value(value)} found at incorrect level: {level + 1} in the JSON DOM. "
                f"Expected at level: {len(shape)}"
            )
        _check_element(value, dtype)
        return 1
    if level >= len(shape):
        raise _Mismatch(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise _Mismatch(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
        )
    good = 0
    if level < len(shape):
        good, elements, size = leading_rows(value, shape[level + 1 :])
        good = min(good, _leading(elements, dtype) // size) if size else good
    return good * prod(shape[level + 1 :]) + sum(_count(item, level + 1, shape, dtype) for item in value[good:])


def _check_element(value: Any, dtype: str) -> None:
    if type(value) is dict and dtype == "string":
        if not is_base64(value):
            raise _Mismatch(f"{_value(value)} not formatted correctly for base64 data")
    elif (dtype in _PLAIN or dtype in _INTEGERS) and not _leading((value,), dtype):
        raise _Mismatch(f"{_value(value)} Type: {kind(value)} is not of expected type: {dtypes.word(dtype)}")


def _leading(values: Sequence[Any], dtype: str) -> int:
    """How many values, from the first on, are elements of the dtype, none of them in another form, such as base64."""
    if dtype in _INTEGERS:
        return leading_whole(values, *_INTEGERS[dtype])
    return leading(values, _PLAIN.get(dtype, ()))


def _value(value: Any) -> str:
    return f"JSON Value: {shown(value)}"


def _short(name: str) -> str:
    return name[:120]


def _listed(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
