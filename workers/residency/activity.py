"""What the runner of one hold does now: it loads, it computes, or it is idle.

The runner works on one request after another, so of all requests with it the oldest is what it does
now. A load beside runs has a thread of the runner to itself: it delays no run, and is told while none is there.
A run that may be what takes runners down has the runner without one, so that neither fails for the other.
A quick run is over before anybody could read of it: how much of the time runs and loads take is told as two sums.
No I/O; the timer is the loop's.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from signalbox.wire.workerdocs import Run
from workers.host.presence import MAX_NAMED
from workers.statistics.worker import Statistics

LOADING: Final = "loading"
COMPUTING: Final = "computing"
SOON_S: Final = 0.5
"""A run that has lasted longer is told at once, and so is its end; shorter ones wait for the next heartbeat."""
Key = tuple[str, int]


class Request:
    """One request with the runner. since: UTC, when its turn came; 0 while others are before it.

    is_beside_load: a load beside runs was under way while the runner had it.
    given_s, began_s, ended_s: on the loop's clock, when the runner got it, when its turn came (until then when the
    runner got it), and when it was answered.
    """

    __slots__ = (
        "activity",
        "began_s",
        "ended_s",
        "given_s",
        "is_beside_load",
        "is_reported",
        "jobs",
        "key",
        "on_turn",
        "since",
    )

    def __init__(
        self, activity: str, key: Key, jobs: tuple[str, ...], on_turn: Callable[[], None], now_s: float
    ) -> None:
        self.activity = activity
        self.key = key
        self.jobs = jobs
        self.on_turn = on_turn
        self.since = 0.0
        self.given_s = self.began_s = self.ended_s = now_s
        self.is_reported = False
        self.is_beside_load = False

    def lasted_s(self, reported_s: float) -> float:
        """Seconds from its turn to its answer. told_s: what the runner says it took.

        Where the answers of two requests are read together, the second one's turn comes only then: the runner is
        believed as far as it had the request at all.
        """
        return max(self.ended_s - self.began_s, min(self.ended_s - self.given_s, reported_s))


class Activity:
    """The requests with the runner, oldest first. changed: is set when others should know of it soon.

    clock: UTC seconds. statistics: knows how long runs and loads take, and learns it of loads here.
    """

    def __init__(self, statistics: Statistics, clock: Callable[[], float], changed: asyncio.Event) -> None:
        self._statistics = statistics
        self.clock = clock
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._requests: list[Request] = []
        self._beside: Request | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._suspects: set[object] = set()
        self._no_suspect = _set()
        self._none_beside = _set()

    def suspect(self, batch: object) -> None:
        """The batch may be what takes runners down, or too much: no load begins beside runs until :meth:`trust`."""
        self._suspects.add(batch)
        self._no_suspect.clear()

    def trust(self, batch: object) -> None:
        """The batch has ended. Idempotent."""
        self._suspects.discard(batch)
        if not self._suspects:
            self._no_suspect.set()

    @property
    def has_suspect(self) -> bool:
        """Whether no load may begin beside runs."""
        return bool(self._suspects)

    async def until_trusted(self) -> None:
        """Wait until a load may begin beside runs."""
        await self._no_suspect.wait()

    async def alone(self, batch: object) -> None:
        """Where the batch is suspected, wait for the load beside it that is under way."""
        if batch in self._suspects:
            await self._none_beside.wait()

    @contextmanager
    def computing(
        self, key: Key, jobs: tuple[str, ...], on_turn: Callable[[], None] = lambda: None
    ) -> Iterator[Request]:
        """A batch is with the runner. on_turn: called when all that was given to it before has ended."""
        request = Request(COMPUTING, key, jobs[:MAX_NAMED], on_turn, self._loop.time())
        self._begin(request)
        try:
            yield request
        finally:
            self._end(request)

    @contextmanager
    def loading(self, key: Key, *, is_beside: bool = False, is_trial: bool = False) -> Iterator[None]:
        """A version is being loaded. One that succeeds counts for what loads of the model take.

        is_beside: runs go on beside it; one at a time. is_trial: it is loaded, and joined requests of it are tried.
        """
        request = Request(LOADING, key, (), lambda: None, self._loop.time())
        begin, end = (self._begin_beside, self._end_beside) if is_beside else (self._begin, self._end)
        begin(request)
        try:
            yield
            if not is_trial:
                self._statistics.loaded(key[0], self._loop.time() - request.began_s)
        finally:
            end(request)

    def now(self) -> Run | None:
        """What the runner does, None if it is idle."""
        if self._requests:
            return self._run(self._requests[0], self._requests[0].jobs)
        if self._beside is not None:
            return self._run(self._beside, (), is_beside=True)
        return None

    def under_way(self) -> Iterator[tuple[str, float]]:
        """What :attr:`Statistics.used_s` does not hold yet: activity and seconds of what the runner does now."""
        for request in (*self._requests[:1], self._beside):
            if request is not None:
                yield request.activity, self._loop.time() - request.began_s

    def _run(self, request: Request, jobs: tuple[str, ...], *, is_beside: bool = False) -> Run:
        model, version = request.key
        is_load = request.activity == LOADING
        usual_s = (self._statistics.load_s if is_load else self._statistics.run_s).get(model, 0.0)
        return Run(
            activity=request.activity,
            model=model,
            version=version,
            jobs=jobs,
            since=request.since,
            expected_s=round(usual_s, 4),
            is_beside=is_beside,
        )

    def _begin(self, request: Request) -> None:
        request.is_beside_load = self._beside is not None
        self._requests.append(request)
        if len(self._requests) == 1:
            self._next()

    def _end(self, request: Request) -> None:
        request.ended_s = self._loop.time()
        was_first = self._requests[0] is request
        self._requests.remove(request)
        if not was_first:
            return
        self._statistics.used(request.activity, request.ended_s - request.began_s)
        if request.is_reported:
            self._changed.set()
        self._next()

    def _begin_beside(self, request: Request) -> None:
        self._beside = request
        self._none_beside.clear()
        for beside in self._requests:
            beside.is_beside_load = True
        request.since = self.clock()
        self._tell(request)

    def _end_beside(self, request: Request) -> None:
        self._statistics.used(request.activity, self._loop.time() - request.began_s)
        if self._beside is request:
            self._beside = None
            self._none_beside.set()
        self._changed.set()

    def _next(self) -> None:
        """The turn of the oldest request has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._requests:
            return
        request = self._requests[0]
        request.since, request.began_s = self.clock(), self._loop.time()
        request.on_turn()
        if request.activity == LOADING:
            self._tell(request)
        else:
            self._timer = self._loop.call_later(SOON_S, self._tell, request)

    def _tell(self, request: Request) -> None:
        request.is_reported = True
        self._changed.set()


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
