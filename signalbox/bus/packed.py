"""Documents kept small: for tables of very many, of which few are read."""

import zlib
from collections.abc import Iterator, MutableMapping
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
MOST_DECODED: Final = 200
"""Documents kept decoded, of those that were read last."""
_RAW: Final = -12
"""No header and no checksum, and a window of 4 KiB, which most documents fit into: a larger one takes time to clear."""
_MEMORY: Final = 5
"""zlib's measure of what compressing one takes meanwhile, here 24 KiB."""


class Packed(MutableMapping[str, T]):
    """Documents by key, compressed; those that are read are kept decoded too, until there are many of them.

    A program knows all models, however few are called. Decoded, one takes a kilobyte and more. Documents of one table
    are alike, so each is compressed with the first one as its dictionary: to some 20 bytes where only the names differ.
    """

    def __init__(self, type_: type[T]) -> None:
        self._packed: dict[str, bytes] = {}
        self._decoded: dict[str, T] = {}
        self._first = b""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(type_).decode

    def __getitem__(self, key: str) -> T:
        found = self._decoded.get(key)
        if found is None:
            found = self._decode(zlib.decompressobj(_RAW, self._first).decompress(self._packed[key]))
            if len(self._decoded) >= MOST_DECODED:
                self._decoded.clear()
            self._decoded[key] = found
        return found

    def __setitem__(self, key: str, document: T) -> None:
        """Raises :class:`msgspec.ValidationError` for a number of more than 64 bits."""
        try:
            encoded = self._encode(document)
        except OverflowError as error:
            raise msgspec.ValidationError(str(error)) from error
        self._first = self._first or encoded
        compressor = zlib.compressobj(1, zlib.DEFLATED, _RAW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, self._first)
        self._packed[key] = compressor.compress(encoded) + compressor.flush()
        self._decoded.pop(key, None)

    def __delitem__(self, key: str) -> None:
        del self._packed[key]
        self._decoded.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)
