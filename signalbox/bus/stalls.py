"""Detects streams in which NATS stores nothing, though it answers everything else.

A stream whose disk was full, or that has no quorum, answers no write and gives no reason. One lost answer proves
nothing, however long ago. Two at least :data:`STALLED_S` apart, on one connection and with no answered write between
them, do: no election of a leader takes so long.
"""

import time
from collections.abc import Callable
from typing import Final

from signalbox.program import log, metrics
from signalbox.program.errors import Unavailable

STALLED_S: Final = 10.0
TRY_S: Final = 2.0
"""How often one write is let through while a stream is stalled, to learn when the stall is over."""
KNOWN_S: Final = 30.0
"""How long after the last lost answer a stream is still reported as stalled."""
TELL_S: Final = 1.0
"""How often the board is told while a stream is stalled."""
WHY: Final = (
    "NATS answers but stores nothing: its disk is full or was, or too few of its nodes are up."
    " An operator has to make room and restart nats-server."
)
BOUND: Final = "storing"
"""The fact by which an error of this cause is known."""
_STALLED: Final = metrics.gauge(
    "nats_stalled_streams", "Streams that answer no write while NATS answers everything else."
)


class Stalls:
    """Counts the lost answers to writes on one connection, and the answered writes while any stall is known."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._lost_at: dict[str, float] = {}
        self._said: set[str] = set()
        self._tried_at: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def lost(self, subject: str) -> None:
        """A write to this subject got no answer, on a connection that is there."""
        stream = stream_of(subject)
        self._lost_at[stream] = now = self._clock()
        self._since.setdefault(stream, now)
        if stream not in self._said and self.is_stalled(subject):
            self._said.add(stream)
            _STALLED.inc()
            log.error("bus.stores_nothing", subjects=f"{stream}.>", reason=WHY)

    def answered(self, subject: str) -> None:
        """A write to this subject was answered."""
        self._forget(stream_of(subject))

    def clear(self) -> None:
        """The connection is gone: the next server may be another."""
        self._since.clear()
        _STALLED.dec(len(self._said))
        self._said.clear()

    def is_stalled(self, subject: str) -> bool:
        """Whether nothing is stored where this subject belongs."""
        stream = stream_of(subject)
        since = self._since.get(stream)
        return since is not None and self._lost_at[stream] >= since + STALLED_S

    def faults(self) -> list[str]:
        """What is stalled, with cause and mend.

        A stall is forgotten where no write was tried lately: a caller that sends no work to a program with faults
        would keep it from learning that the stall is over.
        """
        now = self._clock()
        known = [each for each in sorted(self._said) if now < self._lost_at[each] + KNOWN_S]
        return [f"{stream}.>: {WHY}" for stream in known]

    def check(self, subject: str) -> None:
        """Raises :class:`Unavailable` with cause and mend where nothing is stored, but for a write now and then."""
        if not self._since or not self.is_stalled(subject):
            return
        stream, now = stream_of(subject), self._clock()
        if now < self._tried_at.get(stream, 0.0) + TRY_S:
            raise Unavailable(f"{WHY} Nothing was accepted.", retry_after_s=5.0, bound=BOUND)
        self._tried_at[stream] = now

    def _forget(self, stream: str) -> None:
        if self._since.pop(stream, None) is not None and stream in self._said:
            self._said.discard(stream)
            _STALLED.dec()
            log.info("bus.stores_again", subjects=f"{stream}.>")


def stream_of(subject: str) -> str:
    """The prefix of all subjects of a stream."""
    tokens = subject.split(".", 2)
    return ".".join(tokens[:2]) if tokens[0] == "$KV" else tokens[0]
