"""The heartbeats of a runner: they show that it runs, however long it computes.

A timer of the kernel has a thread of the runner write a byte every half second (:func:`workers.runner.process.beat`),
whatever its other threads do and whichever of them has the interpreter's lock. So silence means one thing: the process
gets no time. It is stopped, frozen with its container, or held by a debugger.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from workers.runner.countdown import Countdown


class Heartbeat(asyncio.Protocol):
    """The socket of one runner's beats.

    on_beat: it runs. on_silent: no beat came for ``silence_s`` since the last one, or since :meth:`expect`; what this
    process could not have received does not count.
    """

    def __init__(self, silence_s: float, *, on_beat: Callable[[], None], on_silent: Callable[[], None]) -> None:
        self._silence_s, self._on_beat = silence_s, on_beat
        self._silence = Countdown(on_silent)
        self._transport: asyncio.Transport | None = None

    def expect(self) -> None:
        """Expect beats from now on."""
        self._silence.start(self._silence_s)

    def end(self) -> None:
        """The process is dead or dying. Idempotent."""
        self._silence.stop()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._silence.start(self._silence_s)
        self._on_beat()
