"""Seeded mutations of bytes: what a careless client, a broken proxy or an attacker might send.

Nothing here knows a format. A target adds its own words with ``TOKENS``; the value of the mutations shows
in the number of outcomes a run reaches.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Final

MOST_BYTES: Final = 65_536
_NUMBER: Final = re.compile(rb"-?\d+")
_NUMBERS: Final = (
    b"0",
    b"-1",
    b"1",
    b"255",
    b"256",
    b"65536",
    b"2147483647",
    b"-2147483648",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e308",
    b"-1e-400",
    b"1e999",
    b"NaN",
    b"0.1",
    b"9" * 25,
    b"9" * 500,
)
_BYTES: Final = (0, 1, 0x0A, 0x22, 0x2C, 0x2E, 0x2F, 0x3A, 0x5B, 0x5C, 0x7B, 0x7F, 0x80, 0xC0, 0xED, 0xFF)
_MOST_STEPS: Final = 5
_LONG: Final = (64, 1_000, 20_000)


class Mutator:
    """Makes inputs from known ones. The same seed and the same pool give the same inputs."""

    def __init__(self, rng: random.Random, tokens: Sequence[bytes] = ()) -> None:
        self._rng = rng
        self._tokens = tuple(tokens)
        self._steps: tuple[Callable[[bytes, Sequence[bytes]], bytes], ...] = (
            self._flip,
            self._flip,
            self._set,
            self._insert,
            self._remove,
            self._remove,
            self._repeat,
            self._cut,
            self._splice,
            self._number,
            self._number,
            *((self._token,) * 4 if self._tokens else ()),
        )

    def mutated(self, pool: Sequence[bytes]) -> bytes:
        """One input of the pool, changed in one to five places, at most ``MOST_BYTES`` long."""
        data = self._rng.choice(pool)
        for _ in range(1 + int(self._rng.random() ** 2 * _MOST_STEPS)):
            data = self._rng.choice(self._steps)(data, pool)
        return data[:MOST_BYTES]

    def _place(self, data: bytes) -> int:
        return int(self._rng.random() * (len(data) + 1))

    def _span(self, data: bytes) -> tuple[int, int]:
        start = self._place(data)
        return start, min(len(data), start + 1 + int(self._rng.random() ** 3 * 64))

    def _flip(self, data: bytes, _: Sequence[bytes]) -> bytes:
        if not data:
            return b"\0"
        at = self._place(data) % len(data)
        return data[:at] + bytes([data[at] ^ (1 << self._rng.randrange(8))]) + data[at + 1 :]

    def _set(self, data: bytes, _: Sequence[bytes]) -> bytes:
        at = self._place(data)
        return data[:at] + bytes([self._rng.choice(_BYTES)]) + data[at + 1 :]

    def _insert(self, data: bytes, _: Sequence[bytes]) -> bytes:
        at = self._place(data)
        return data[:at] + bytes([self._rng.choice(_BYTES)]) + data[at:]

    def _remove(self, data: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._span(data)
        return data[:start] + data[end:]

    def _repeat(self, data: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._span(data)
        times = 2
        if self._rng.random() < 0.02:  # rarely much: it costs what hundreds of others do
            times = min(self._rng.choice(_LONG), MOST_BYTES // (end - start + 1))
        return data[:start] + data[start:end] * times + data[end:]

    def _cut(self, data: bytes, _: Sequence[bytes]) -> bytes:
        return data[: self._place(data)] if self._rng.random() < 0.5 else data[self._place(data) :]

    def _splice(self, data: bytes, pool: Sequence[bytes]) -> bytes:
        other = self._rng.choice(pool)
        start, end = self._span(other)
        at = self._place(data)
        if self._rng.random() < 0.3:
            return data[:at] + other[self._place(other) :]
        return data[:at] + other[start:end] + data[at:]

    def _number(self, data: bytes, _: Sequence[bytes]) -> bytes:
        found = list(_NUMBER.finditer(data, 0, 4096))
        if not found:
            return self._flip(data, _)
        hit = self._rng.choice(found)
        return data[: hit.start()] + self._rng.choice(_NUMBERS) + data[hit.end() :]

    def _token(self, data: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._span(data)
        word = self._rng.choice(self._tokens)
        return data[:start] + word + data[end if self._rng.random() < 0.5 else start :]
