"""One input's JSON value to a tensor, checked against its dtype, with words for what does not fit.

Lists must make a tensor; whether its shape suits the model is TensorFlow's to judge, as in TensorFlow Serving.
"""

import base64
import binascii
import struct
from collections.abc import Callable
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from gateway_plugin.codec.serving.regular import leading, leading_rows
from signalbox.front.jsonbody import MAX_DEPTH, kind_of
from signalbox.program.errors import InvalidInput
from signalbox.wire.modeldocs import TensorSpec
from signalbox.wire.tensors import ITEM_SIZE, Tensor

NUMPY: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(name).newbyteorder("<") for name in ITEM_SIZE if name != "bfloat16"
}
"""How numpy holds a tensor of a dtype; it has no bfloat16."""
_INTEGERS: Final = frozenset(n for n in ITEM_SIZE if n.startswith(("int", "uint")))
_COMPLEX: Final = {"complex64": "float32", "complex128": "float64"}
_PACK: Final = {
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
}
_LEAST_ROW: Final = 16
"""Elements of a row that is packed by itself; shorter ones cost less together."""
_TOP: Final = "the top"
_BOOL: Final = frozenset({bool})
_INT: Final = frozenset({int})
_FLOAT: Final = frozenset({int, float})
E = TypeVar("E")


class Input:
    """One input of a signature, ready to be filled. rank: as the signature says it, None = any."""

    def __init__(self, name: str, spec: TensorSpec) -> None:
        self.name = name
        self.dtype = spec.dtype
        self.rank = None if spec.shape is None else len(spec.shape)
        self._code = _PACK.get(spec.dtype, "")
        self.build: Callable[[Any, bool], Tensor] = self._pick()

    def _pick(self) -> Callable[[Any, bool], Tensor]:
        if self.dtype == "string":
            return self._strings
        if self.dtype in _COMPLEX:
            return self._complex
        if self.dtype in ITEM_SIZE:
            return self._numbers
        return self._unsupported

    def _unsupported(self, value: Any, is_plain: bool) -> Tensor:
        raise InvalidInput(f'Input "{self.name}": {self.dtype} cannot be sent as JSON.', input=self.name)

    def _numbers(self, value: Any, is_plain: bool) -> Tensor:
        self._require_kinds(value, self.dtype, is_plain)
        packed = self._packed(value) if type(value) is list and self._code else None
        if packed is not None:
            return packed
        array = self._array(value, self.dtype)
        data = _bfloat16(array) if self.dtype == "bfloat16" else array.tobytes()
        return Tensor(self.name, self.dtype, array.shape, data)

    def _packed(self, value: list[Any]) -> Tensor | None:
        """A list of numbers, or of such lists in any depth, without an array, which costs three times as much.

        None for what is not regular, or wrong: the array tells.
        """
        rows, shape = [value], [len(value)]
        try:
            while rows and shape[-1] and type(rows[0][0]) is list:
                rows = list(chain.from_iterable(rows))
                shape.append(len(rows[0]))
                if set(map(len, rows)) != {shape[-1]}:
                    return None
            if shape[-1] < _LEAST_ROW:
                rows = [list(chain.from_iterable(rows))]
            pack = struct.Struct(f"<{len(rows[0])}{self._code}").pack
            data = b"".join([pack(*row) for row in rows])
        except (struct.error, OverflowError, TypeError):
            return None
        return Tensor(self.name, self.dtype, tuple(shape), data)

    def _complex(self, value: Any, is_plain: bool) -> Tensor:
        """A complex number is a pair ``[real, imaginary]``; TF Serving has no form for it."""
        self._require_kinds(value, _COMPLEX[self.dtype], is_plain)
        array = self._array(value, _COMPLEX[self.dtype])
        if array.ndim == 0 or array.shape[-1] != 2:
            self._refuse("pairs [real, imaginary]", f"shape {list(array.shape)}")
        return Tensor(self.name, self.dtype, array.shape[:-1], array.tobytes())

    def _require_kinds(self, value: Any, dtype: str, is_plain: bool) -> None:
        """Refuse a boolean among numbers, which numpy takes for one, and a string before numpy sees it.

        One string makes numpy turn all its neighbours into strings, each as wide as the longest.
        """
        if is_plain and type(value) is list:
            return
        if not _kinds(value) <= _kinds_of(dtype):
            self._explain(value, dtype)

    def _array(self, value: Any, dtype: str) -> np.ndarray[Any, Any]:
        """``value`` as a little-endian array of ``dtype`` (bfloat16: still as float32)."""
        target = NUMPY.get(dtype, NUMPY["float32"])
        try:
            raw = np.array(value)
        except ValueError:  # ragged, or deeper than arrays go
            self._explain(value, dtype)
            self._refuse(f"{dtype} in at most {MAX_DEPTH} dimensions", "lists that do not fit")
        kind = raw.dtype.kind
        if raw.ndim > MAX_DEPTH:
            self._refuse(f"at most {MAX_DEPTH} dimensions", str(raw.ndim))
        if raw.size == 0:
            return raw.astype(target)
        if dtype == "bool":
            if kind != "b":
                self._explain(value, dtype)
            return raw
        if kind not in "iuf":
            self._explain(value, dtype)
        if dtype in _INTEGERS:
            return self._integers(value, raw, dtype, target)
        if kind == "O":  # whole numbers of more than 64 bits
            raw = np.array([float(n) for n in raw.flat]).reshape(np.shape(value))
        with np.errstate(over="ignore"):  # too large a number becomes infinite, as in TensorFlow Serving
            return raw.astype(target)

    def _integers(
        self, value: Any, raw: np.ndarray[Any, Any], dtype: str, target: np.dtype[Any]
    ) -> np.ndarray[Any, Any]:
        if raw.dtype.kind == "f":
            # Either a decimal, or whole numbers on both sides of 2**63, which numpy makes floats.
            self._explain(value, dtype)
            raw = np.array(value, dtype=object)
        limits = np.iinfo(target)
        low, high = int(raw.min()), int(raw.max())
        if low < limits.min or high > limits.max:
            bad = low if low < limits.min else high
            self._refuse(f"{dtype} ({limits.min} to {limits.max})", str(bad))
        return raw.astype(target)

    def _strings(self, value: Any, is_plain: bool) -> Tensor:
        shape = self._shape(value)
        flat: list[bytes] = []
        self._walk(value, shape, "", self._bytes_of, flat)
        data = b"".join(part for item in flat for part in (struct.pack("<I", len(item)), item))
        return Tensor(self.name, "string", shape, data)

    def _shape(self, value: Any) -> tuple[int, ...]:
        shape: list[int] = []
        while type(value) is list:
            if len(shape) == MAX_DEPTH:
                self._refuse(f"at most {MAX_DEPTH} dimensions", "more")
            shape.append(len(value))
            if not value:
                break
            value = value[0]
        return tuple(shape)

    def _bytes_of(self, value: Any, path: str) -> bytes:
        where = path or _TOP
        try:
            if type(value) is str:
                return value.encode()
            if is_base64(value):
                return bytes_of(value["b64"])
        except UnicodeEncodeError:
            self._refuse("string", f"a lone surrogate at {where}")
        except ValueError:
            self._refuse("valid base64 in b64", f"something else at {where}")
        return self._refuse("string", f"{kind_of(value)} at {where}")

    def _explain(self, value: Any, dtype: str) -> None:
        """Raise for the first element that does not fit ``dtype``; return if all do."""
        fitting, shape, good = _kinds_of(dtype), self._shape(value), 0

        def check(value: Any, path: str) -> None:
            if type(value) not in fitting:
                self._refuse(dtype, f"{kind_of(value)} at {path or _TOP}")

        if shape:
            good, elements, size = leading_rows(value, shape[1:])
            good = min(good, leading(elements, fitting) // size) if size else good
        self._walk(value, shape, "", check, [], good)

    def _walk(
        self,
        value: Any,
        shape: tuple[int, ...],
        path: str,
        take: Callable[[Any, str], E],
        taken: list[E],
        start: int = 0,
    ) -> None:
        """Add what ``take`` returns of each element to ``taken``, from item ``start`` on.

        Raises for lists that do not have this shape.
        """
        if not shape:
            taken.append(take(value, path))
            return
        if type(value) is not list:
            self._refuse(f"a list of {shape[0]}", f"{kind_of(value)} at {path or _TOP}")
        if len(value) != shape[0]:
            self._refuse(f"a list of {shape[0]}", f"a list of {len(value)} at {path or _TOP}")
        inner = shape[1:]
        for index in range(start, len(value)):
            self._walk(value[index], inner, f"{path}[{index}]", take, taken)

    def _refuse(self, expected: str, got: str) -> NoReturn:
        raise InvalidInput(
            f'Input "{self.name}": expected {expected}, got {got}.', input=self.name, expected=expected, got=got
        )


def is_base64(value: Any) -> bool:
    """Whether ``value`` is the ``{"b64": text}`` form of bytes."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def bytes_of(text: str) -> bytes:
    """What base64 text stands for; as in TensorFlow Serving it may lack its padding and hold white space.

    Raises :class:`ValueError`.
    """
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        bare = "".join(text.split())
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)


def _bfloat16(array: np.ndarray[Any, Any]) -> bytes:
    """float32 to bfloat16, rounding to nearest even."""
    bits = np.ascontiguousarray(array, dtype="<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype("<u2").tobytes()


def _kinds(value: Any) -> set[type]:
    """The types of what the innermost lists hold; ``list`` is one of them where some are deeper than others."""
    level = [value]
    while (kinds := set(map(type, level))) == {list}:
        level = list(chain.from_iterable(level))
    return kinds


def _kinds_of(dtype: str) -> frozenset[type]:
    """The types that elements of ``dtype`` may have in JSON."""
    return _BOOL if dtype == "bool" else _INT if dtype in _INTEGERS else _FLOAT
