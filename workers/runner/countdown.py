"""A time limit that counts only what this process was awake for."""

import asyncio
from collections.abc import Callable
from typing import Final

_SLICE_S: Final = 0.5


class Countdown:
    """Calls ``on_over`` when so many seconds have passed since the last :meth:`start`.

    They are counted in slices, each of which must pass in its time. Time in which this process itself did not run
    (stopped, suspended, its loop blocked) does not count, and data that arrived meanwhile is read before the next
    slice is over.
    """

    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self._timer: asyncio.TimerHandle | None = None
        self._left_s = 0.0

    def start(self, seconds: float) -> None:
        """From now on, whatever was counted before."""
        self.stop()
        self._left_s = seconds
        self._count()

    def add(self, seconds: float) -> None:
        """Count so many more, also where it is over."""
        if self._timer is not None:
            self._left_s += seconds
        else:
            self.start(seconds)

    def stop(self) -> None:
        """Nothing is counted any more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _count(self) -> None:
        loop = asyncio.get_running_loop()
        slice_s = min(self._left_s, _SLICE_S)
        due = loop.time() + slice_s

        def pass_slice() -> None:
            if loop.time() < due + _SLICE_S:
                self._left_s -= slice_s
            if self._left_s > 0:
                self._count()
            else:
                self._timer = None
                self._on_over()

        self._timer = loop.call_at(due, pass_slice)
