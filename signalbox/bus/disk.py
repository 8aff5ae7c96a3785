"""Measures the room on the disk that holds NATS's streams, where this machine can see that disk."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.program import health
from signalbox.program.errors import Unavailable

POLL_S: Final = 0.25
"""How long an answer about the room is good: a disk fills in seconds."""
_RETRY_AFTER_S: Final = 5.0
_MIB: Final = 1024 * 1024

_LOW: Final = "The disk of NATS has no more room than is kept for jobs that were accepted: make room there."


class Room(NamedTuple):
    """Room on the file system of ``folder``. reserve_bytes: what is kept for jobs that were accepted."""

    folder: Path
    reserve_bytes: int

    def free_bytes(self) -> int | None:
        """What an ordinary user may still write; None where the folder cannot be looked at."""
        try:
            found = os.statvfs(self.folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def is_low(self) -> bool:
        """Whether the reserve has been reached."""
        free = self.free_bytes()
        return free is not None and free < self.reserve_bytes


class Reserve:
    """Refuses new jobs while the room is low. store: folder of NATS's store, empty = it cannot be seen from here."""

    def __init__(self, store: str, reserve_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._room = Room(Path(store), reserve_bytes) if store else None
        self._clock = clock
        self._read_at = float("-inf")
        self._is_low = False
        if self._room is not None:
            health.READY.add(self)

    def faults(self) -> list[str]:
        """Why no new job is taken, see :mod:`signalbox.program.health`."""
        return [_LOW] if self.is_low else []

    @property
    def is_low(self) -> bool:
        """Whether the reserve has been reached, as of a moment ago."""
        now = self._clock()
        if self._room is not None and now >= self._read_at + POLL_S:
            self._read_at = now
            self._is_low = self._room.is_low()
        return self._is_low

    def check(self) -> None:
        """Raises :class:`Unavailable` with cause and mend while the reserve has been reached."""
        if self.is_low and self._room is not None:
            raise Unavailable(
                f"The disk of NATS has less than {self._room.reserve_bytes // _MIB} MB left, which are kept for jobs"
                " that were accepted; nothing was accepted. Try again later; an operator has to make room.",
                retry_after_s=_RETRY_AFTER_S,
                bound="disk",
            )
