"""Reads of a checkpoint's index which data files there are and how large each is at least.

The index is a table in LevelDB's format, which TensorFlow writes without compression. Field numbers are those of
TensorFlow's tensor_bundle.proto; nothing else of the entries is read. What does not parse raises :class:`IndexError`.
"""

from collections.abc import Iterator
from typing import Final

from workers.runner.protowire import number, varint

_MAGIC: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER_BYTES: Final = 48
_TRAILER_BYTES: Final = 5
"""Compression and checksum, behind each block."""
_MOST_SHARDS: Final = 99_999
_Entry = tuple[memoryview, memoryview]


def data_bytes(index: memoryview) -> list[int]:
    """The least size in bytes of each data file, by its number. Raises :class:`IndexError` where it is cut short."""
    if bytes(index[-8:]) != _MAGIC:
        raise IndexError("the end is missing")
    sizes: list[int] = []
    for handle in _handles(index):
        for rest, value in _entries(_block(index, *handle)):
            if not sizes:  # the header has the empty key, which is the first
                shards = number(value, 1)
                if rest or not 0 < shards <= _MOST_SHARDS:
                    raise IndexError("there is no header")
                sizes = [0] * shards
            else:
                shard, end = number(value, 3), number(value, 4) + number(value, 5)
                sizes[shard] = max(sizes[shard], end)
    return sizes


def _handles(index: memoryview) -> Iterator[tuple[int, int]]:
    """Where each block of entries lies: (offset, bytes)."""
    at = len(index) - _FOOTER_BYTES
    for _ in range(2):  # what is there of the filters is not looked at
        _, at = varint(index, at)
    offset, at = varint(index, at)
    size, at = varint(index, at)
    for _, value in _entries(_block(index, offset, size)):
        offset, behind = varint(value, 0)
        yield offset, varint(value, behind)[0]


def _block(index: memoryview, offset: int, size: int) -> memoryview:
    """The entries of one block."""
    if offset + size + _TRAILER_BYTES > len(index) or size < 4 or index[offset + size]:
        raise IndexError("a block is cut short or compressed")
    block = index[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    return block[: -4 * (restarts + 1)]


def _entries(block: memoryview) -> Iterator[_Entry]:
    """(what the key has that the one before had not, value) of each entry."""
    at = 0
    while at < len(block):
        _, at = varint(block, at)
        rest, at = varint(block, at)
        size, at = varint(block, at)
        if at + rest + size > len(block):
            raise IndexError(at)
        yield block[at : at + rest], block[at + rest : at + rest + size]
        at += rest + size
