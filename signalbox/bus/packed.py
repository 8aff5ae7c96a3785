"""Documents kept small: for tables of very many, of which few are read."""

from collections.abc import Iterator, MutableMapping
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
MOST_DECODED: Final = 1_000
"""Documents kept decoded, of those that were read last."""


class Packed(MutableMapping[str, T]):
    """Documents by key, encoded; those that are read are kept decoded too, until there are many of them.

    A decoded model takes four times as much memory, and a program knows all models, however few are called.
    """

    def __init__(self, type_: type[T]) -> None:
        self._encoded: dict[str, bytes] = {}
        self._decoded: dict[str, T] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(type_).decode

    def __getitem__(self, key: str) -> T:
        found = self._decoded.get(key)
        if found is None:
            found = self._decode(self._encoded[key])
            if len(self._decoded) >= MOST_DECODED:
                self._decoded.clear()
            self._decoded[key] = found
        return found

    def __setitem__(self, key: str, document: T) -> None:
        """Raises :class:`msgspec.ValidationError` for a number of more than 64 bits."""
        try:
            self._encoded[key] = self._encode(document)
        except OverflowError as error:
            raise msgspec.ValidationError(str(error)) from error
        self._decoded.pop(key, None)

    def __delitem__(self, key: str) -> None:
        del self._encoded[key]
        self._decoded.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._encoded

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)
