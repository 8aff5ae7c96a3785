"""One runner's socket: its requests in order, the one that it works on, and the one that it died of."""

import asyncio
import math
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import msgspec

from signalbox.program import log
from signalbox.program.errors import Bug, DeadlineExceeded, RunnerCrashed, SignalboxError
from workers.host import gauges
from workers.runner import frames
from workers.runner.countdown import Countdown
from workers.runner.heartbeat import Heartbeat

FROZEN_S: Final = 3.0
"""A process that has not beaten for so long is frozen."""
LOAD_S: Final = 300.0
"""Longest time of a load."""


class RunnerLost(RunnerCrashed):
    """The process died, but not of this request: it worked on another, or on none."""


class _Pending(NamedTuple):
    """A request without an answer; the task that sent it may have ended."""

    future: asyncio.Future[frames.Answer]
    timeout_s: float


class _Thread:
    """Requests that the process works on one after another: the first is the one it is at, and whose time runs.

    No request exceeds its time while the process is frozen: that is decided at its next beat, and what it was frozen
    for does not count.
    """

    def __init__(self, on_overdue: Callable[[_Pending], None]) -> None:
        self.asked: dict[int, _Pending] = {}
        self._on_overdue = on_overdue
        self._is_overdue = False
        self._clock = Countdown(self._over)

    @property
    def first(self) -> _Pending | None:
        """The request that the process works on."""
        return next(iter(self.asked.values()), None)

    def add(self, id_: int, asked: _Pending) -> None:
        """Note a request that was sent."""
        self.asked[id_] = asked
        if len(self.asked) == 1:
            self._start_clock()

    def take(self, id_: int) -> _Pending | None:
        """Take out the request that is answered. None where it was not asked for."""
        is_first = id_ == next(iter(self.asked), 0)
        asked = self.asked.pop(id_, None)
        if is_first:
            self._start_clock()
        return asked

    def clear(self) -> None:
        """Nothing will be answered."""
        self.asked.clear()
        self._start_clock()

    def beat(self, silent_s: float) -> None:
        """The process runs. silent_s: for how long it did not."""
        first = self.first
        if first is None:
            return
        if silent_s:
            self._is_overdue = False
            self._clock.add(silent_s)
        elif self._is_overdue:
            self._is_overdue = False
            self._on_overdue(first)

    def _start_clock(self) -> None:
        """The process begins with the first request that it has not answered."""
        self._is_overdue = False
        first = next(iter(self.asked.values()), None)
        if first is None:
            self._clock.stop()
        else:
            self._clock.start(first.timeout_s)

    def _over(self) -> None:
        self._is_overdue = True


class RunnerWire(asyncio.Protocol):
    """One process's socket. Answers are matched to requests by id; whatever does not parse ends it.

    The process serves requests one after another, and beside them one load. If it dies during both, the load counts as
    the cause and is not tried beside runs again, so that the real cause runs alone the next time.
    kill: ends the process when it sends an invalid frame, works on one request for too long, or is frozen (which
    counts against no request).
    heartbeat: of the process's other socket; it must beat from when the process is ready.
    """

    def __init__(
        self,
        limit: int,
        *,
        on_ready: Callable[[frames.RunnerStarted], None],
        kill: Callable[[], None],
        frozen_s: float = FROZEN_S,
    ) -> None:
        self._splitter = frames.Splitter(limit)
        self._on_ready, self._kill = on_ready, kill
        self._highest = 0
        self._frozen_s = frozen_s
        self._beat_at = math.inf
        self._work = _Thread(self._on_overdue)
        self._beside = _Thread(self._on_overdue_beside)
        self.heartbeat = Heartbeat(frozen_s, on_beat=self._on_beat, on_silent=self._on_silent)
        self._transport: asyncio.Transport | None = None
        self.is_broken = False
        self.is_dying = False
        """Its end is ordered: nothing more is asked of it, and what it still loads is of no use."""
        self.is_ended_by_us = False
        """Its death is no load's doing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        # uvloop's transports do not inherit from asyncio's, so asking would find none.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self.is_broken:
            return
        try:
            answers = [frames.answer(body) for body in self._splitter.feed(data)]
        except (msgspec.MsgspecError, Bug):
            self._refuse()  # a runner that sends malformed frames counts as crashed
            return
        for answer in answers:
            if isinstance(answer, frames.RunnerStarted):
                self.heartbeat.expect()
                self._on_ready(answer)
            elif asked := self._work.take(answer.id) or self._beside.take(answer.id):
                if not asked.future.done():
                    asked.future.set_result(answer)
            elif not 0 < answer.id <= self._highest:
                self._refuse()  # to a request that was not sent
                return

    def _on_overdue(self, asked: _Pending) -> None:
        self.is_ended_by_us = True
        self._on_overdue_beside(asked)

    def _on_overdue_beside(self, asked: _Pending) -> None:
        if not asked.future.done():
            message = f"The model did not finish within {asked.timeout_s:g} s."
            asked.future.set_exception(DeadlineExceeded(message))
        self.end()

    def _on_beat(self) -> None:
        now_s = asyncio.get_running_loop().time()
        late_s = now_s - self._beat_at - frames.BEAT_S
        self._beat_at = now_s
        silent_s = min(late_s, self._frozen_s) if late_s > frames.BEAT_S else 0.0
        self._work.beat(silent_s)
        self._beside.beat(silent_s)

    def _on_silent(self) -> None:
        gauges.RUNNER_REFUSED.labels("silence").inc()
        log.error("runner.frozen", requests=len(self._work.asked) + len(self._beside.asked))
        self.fail(RunnerLost("The runner was frozen."))
        self.end()

    def _refuse(self) -> None:
        gauges.RUNNER_REFUSED.labels("frame").inc()
        self.fail()
        self.end()

    def end(self) -> None:
        """Have the process ended. Idempotent."""
        self.is_dying = True
        self._kill()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.fail()

    def send(
        self, id_: int, data: bytes, timeout_s: float, *, is_beside: bool = False
    ) -> asyncio.Future[frames.Answer]:
        """Send a request; the future gets its answer. is_beside: it is worked on beside the others."""
        future: asyncio.Future[frames.Answer] = asyncio.get_running_loop().create_future()
        if self.is_broken or self.is_dying or self._transport is None:
            future.set_exception(RunnerLost())
        else:
            self._highest = id_
            self._transport.write(data)
            (self._beside if is_beside else self._work).add(id_, _Pending(future, timeout_s))
        return future

    def fail(self, first: SignalboxError | None = None) -> None:
        """The process is gone: fail all requests that wait, with ``first`` the one that it worked on."""
        self.is_broken = True
        beside = None if self.is_ended_by_us else self._beside.first
        culprit = beside or self._work.first
        for asked in (*self._work.asked.values(), *self._beside.asked.values()):
            if not asked.future.done():
                asked.future.set_exception(first or RunnerCrashed() if asked is culprit else RunnerLost())
        self._work.clear()
        self._beside.clear()
        self.heartbeat.end()
        if self._transport is not None:
            self._transport.close()
