"""Settings of the codec: how large bodies and results may be, and the processes that decode large ones."""

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta

from signalbox.front.bounds import HttpBounds

_PREFIX: Final = "SIGNALBOX_GATEWAY_"
_MIB: Final = 1024 * 1024
_MEMORY_FLOOR: Final = 256 * _MIB
_ELEMENT_BYTES: Final = 96
"""The most an array element takes once parsed: an empty list and the place that names it. A name counts as four."""


class CodecSettings(HttpBounds, frozen=True, kw_only=True):
    """The part of the gateway plugin's settings that its codec reads."""

    max_body_bytes: Annotated[int, Meta(ge=1024, description="Largest request body, as sent, that is decoded.")] = (
        32 * _MIB
    )
    max_elements: Annotated[
        int, Meta(ge=1, description="Most array elements in one JSON body; each name in an object counts as four.")
    ] = 8_000_000
    max_answer_bytes: Annotated[int, Meta(ge=1024, description="Largest JSON of one result; a larger one is 422.")] = (
        60 * _MIB
    )
    decode_processes: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="Most processes that decode large bodies. An account has no more of them than are still free, "
            "of three two.",
        ),
    ] = 3
    decode_memory_bytes: Annotated[
        int, Meta(ge=256 * _MIB, description="Address space one decoding process may use.")
    ] = 2048 * _MIB
    decode_timeout_s: Annotated[float, Meta(gt=0, description="Longest decoding or rendering of one body.")] = 20.0

    def problems(self) -> Iterator[str]:
        """Rules that span fields."""
        yield from super().problems()
        needed = _MEMORY_FLOOR + 8 * self.max_body_bytes + _ELEMENT_BYTES * self.max_elements
        if self.decode_memory_bytes < needed:
            yield (
                f"{_PREFIX}DECODE_MEMORY_BYTES must be at least {needed} for {_PREFIX}MAX_BODY_BYTES and "
                f"{_PREFIX}MAX_ELEMENTS: the JSON parser does not survive running out of it"
            )
