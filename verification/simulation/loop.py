"""An asyncio event loop in virtual time: no I/O, no threads, no waiting, the same run for the same seed.

Nothing happens between callbacks: when no program can run, time jumps to the next timer. Callbacks belong
to simulated *programs* by the context they run in, so a program can be frozen (its callbacks wait),
killed (they are dropped) and have clocks of its own. Within a program callbacks run in the order asyncio
promises; which program runs next is drawn from the seed.
"""

import asyncio
import contextvars
import heapq
import random
import secrets
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeVar, TypeVarTuple, cast
from unittest.mock import patch

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
EPOCH: Final = 1_800_000_000.0
"""UTC unix seconds at virtual second 0, on a clock that is right."""
_LONGEST_INSTANT: Final = 100_000
"""Callbacks without any time passing, after which a run is taken for an endless loop."""
_ROUNDING_S: Final = 1e-9


class Stuck(Exception):
    """No program can run and no timer is set, or programs run without end and time stands still."""


class Clock:
    """The clocks of one machine. rate: seconds it counts in a true one. wall: its error in UTC, seconds.

    slept: seconds that CLOCK_BOOTTIME counted and CLOCK_MONOTONIC did not. asleep_since: true time at which the machine
    was suspended, None while it is awake. started: true time of its start.
    """

    __slots__ = ("asleep_since", "rate", "slept", "started", "wall")

    def __init__(self, *, rate: float = 1.0, wall: float = 0.0, started: float = -1000.0) -> None:
        self.rate, self.wall, self.started = rate, wall, started
        self.slept = 0.0
        self.asleep_since: float | None = None

    def boottime(self, now: float) -> float:
        """CLOCK_BOOTTIME at true time ``now``."""
        return (now - self.started) * self.rate

    def monotonic(self, now: float) -> float:
        """CLOCK_MONOTONIC, which stands still while the machine is suspended."""
        if self.asleep_since is not None:
            now = self.asleep_since
        return (now - self.started) * self.rate - self.slept

    def utc(self, now: float) -> float:
        """What this machine takes for UTC."""
        return EPOCH + now * self.rate + self.wall

    def read(self, clock_id: int, now: float) -> float:
        """As ``clock_gettime``."""
        if clock_id == time.CLOCK_REALTIME:
            return self.utc(now)
        return (self.boottime if clock_id == time.CLOCK_BOOTTIME else self.monotonic)(now)

    def when(self, monotonic: float) -> float:
        """The true time at which :meth:`monotonic` will be so, if the machine stays awake."""
        return (monotonic + self.slept) / self.rate + self.started


program: Final[contextvars.ContextVar["Program"]] = contextvars.ContextVar("program")
"""The program whose callback runs."""


class Program:
    """Whose callbacks these are. A program is not an OS process yet: see :mod:`verification.simulation.kernel`."""

    __slots__ = ("clock", "context", "is_dead", "is_frozen", "is_listed", "name", "ready")

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self.clock = name, clock
        self.context = contextvars.Context()
        self.context.run(program.set, self)
        self.is_frozen = self.is_dead = self.is_listed = False
        self.ready: deque[asyncio.Handle] = deque()

    def __repr__(self) -> str:
        return f"<{self.name}>"


WORLD: Final = Program("world", Clock(started=0.0))
"""Everything that is not inside a simulated program: the faults, the oracle, the network. Its clock is right."""


class _Serials:
    """Numbers for the hashes of tasks and futures; each world counts from 1."""

    count = count(1)


class SimFuture(asyncio.Future[T]):
    """A future with a hash that does not depend on where it lies in memory, so sets of them keep their order."""

    serial: int

    def __new__(cls, *_: object, **__: object) -> "SimFuture[T]":
        future = super().__new__(cls)
        future.serial = next(_Serials.count)  # before asyncio puts it into its own sets
        return future

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[T]):
    """A task with such a hash."""

    serial: int

    def __new__(cls, *_: object, **__: object) -> "SimTask[T]":
        task = super().__new__(cls)
        task.serial = next(_Serials.count)
        return task

    def __hash__(self) -> int:
        return self.serial


class SimLoop(asyncio.BaseEventLoop):
    """See the module. ``seed`` decides every choice the loop makes."""

    _stopping: bool

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.set_debug(False)
        self.now = 0.0
        _Serials.count = count(1)
        self.callbacks = 0
        self._draw = random.Random(f"loop {seed}").random
        self._serial = 0
        self._tasks: list[SimTask[Any]] = []  # those of the dead too, so that nothing of theirs is finalised
        self._prune_at = 1000
        self._runnable: list[Program] = []
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle, Program]] = []
        self._asleep: list[tuple[asyncio.TimerHandle, Program]] = []
        self._cancelled = 0
        self._instant = 0
        self._is_over = False
        WORLD.ready.clear()
        WORLD.is_listed = False

    # -- what asyncio asks ---------------------------------------------------------------------------

    # False, and said in C: every handle that is made asks, which is a fortieth of a run.
    get_debug = staticmethod(bool)

    def time(self) -> float:
        """CLOCK_MONOTONIC of the program that asks."""
        running = program.get(WORLD)
        return self.now if running is WORLD else running.clock.monotonic(self.now)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` after what its program has to run already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run ``callback`` when its program's clock shows ``when``."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._schedule(handle, _owner(handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return SimFuture(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        """A task of the program that makes it."""
        task: SimTask[T] = SimTask(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._prune_at = 2 * len(self._tasks) + 100
        return task

    async def create_connection(  # type: ignore[override]
        self, factory: Any, *args: Any, sock: Any = None, **_: Any
    ) -> Any:
        """Only over a socket of the simulated kernel, which knows how to :meth:`join`."""
        if args or not hasattr(sock, "join"):
            raise Stuck("There is no network here.")
        protocol = factory()
        return sock.join(protocol), protocol

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """At once: there are no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  its awaiter gets it
            future.set_exception(error)
        return future

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > 200 and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[3].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    # -- programs ------------------------------------------------------------------------------------

    def spawn(self, owner: Program, coro: Coroutine[Any, Any, T], name: str = "main") -> asyncio.Task[T]:
        """The first task of a program (or a further one)."""
        return self.create_task(coro, name=f"{owner.name} {name}", context=owner.context.copy())

    def spawn_world(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task outside every simulated program."""
        return self.spawn(WORLD, coro)

    def post(
        self, owner: Program, callback: Callable[[*Ts], object], *args: *Ts, delay: float = 0.0
    ) -> asyncio.TimerHandle:
        """Let ``owner`` run ``callback`` in ``delay`` true seconds: how programs reach each other."""
        when = owner.clock.monotonic(self.now) + delay * owner.clock.rate
        handle = asyncio.TimerHandle(when, callback, args, self, owner.context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._schedule(handle, owner)
        return handle

    def freeze(self, owner: Program) -> None:
        """SIGSTOP: its callbacks wait, its timers too."""
        owner.is_frozen = True

    def thaw(self, owner: Program) -> None:
        """SIGCONT."""
        owner.is_frozen = False
        self._list(owner)

    def suspend(self, clock: Clock) -> None:
        """Nothing that goes by ``clock`` runs, and its timers stand still."""
        clock.asleep_since = self.now

    def wake(self, clock: Clock, owners: Iterable[Program]) -> None:
        """All of ``owners`` go on at once: which of them is first is drawn, as always."""
        assert clock.asleep_since is not None
        clock.slept += (self.now - clock.asleep_since) * clock.rate
        clock.asleep_since = None
        asleep, self._asleep = self._asleep, []
        for handle, owner in asleep:
            if owner.clock is clock:
                self._schedule(handle, owner)
            else:
                self._asleep.append((handle, owner))
        for owner in owners:
            self._list(owner)

    def kill(self, owner: Program) -> None:
        """SIGKILL: nothing of it ever runs again."""
        owner.is_dead = True
        owner.ready.clear()

    def end_all(self) -> None:
        """The run is over: end what still waits, without letting it say anything more."""
        self._is_over = True
        for task in self._tasks:
            coroutine = cast("Coroutine[Any, Any, Any]", task.get_coro())
            for _ in range(20):  # each may wait for something more while it unwinds
                try:
                    coroutine.close()
                    break
                except BaseException:  # noqa: BLE001, S112  its program has ended
                    continue
        self._tasks.clear()
        self._timers.clear()
        self._asleep.clear()
        self._runnable.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What the world has to know of. After its end the collector finds what was never awaited; a handler that
        described it then has crashed the interpreter."""
        if not self._is_over:
            super().call_exception_handler(context)

    # -- time ----------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        runnable, draw = self._runnable, self._draw
        while runnable and not self._stopping:
            place = int(draw() * len(runnable)) if len(runnable) > 1 else 0
            owner = runnable[place]
            if not owner.ready or owner.is_frozen or owner.clock.asleep_since is not None:
                owner.is_listed = False
                runnable[place] = runnable[-1]
                runnable.pop()
                continue
            handle = owner.ready.popleft()
            self._instant += 1
            if not handle._cancelled:
                self.callbacks += 1
                handle._run()
            if self._instant > _LONGEST_INSTANT:
                raise Stuck(f"Time stands still at {self.now:.3f} s; the last callback was {handle!r}.")
        if not self._stopping:
            self._advance()

    def _advance(self) -> None:
        """Jump to the next timer of a living program."""
        timers = self._timers
        is_found = False
        while timers and not (is_found and timers[0][0] > self.now):
            when, _, _, handle, owner = heapq.heappop(timers)
            if handle.cancelled():
                self._cancelled -= 1
                continue
            if owner.is_dead:
                continue
            if owner is not WORLD:
                if owner.clock.asleep_since is not None:
                    self._asleep.append((handle, owner))
                    continue
                due = owner.clock.when(handle.when())
                if due > when + _ROUNDING_S:  # its machine slept meanwhile
                    self._schedule(handle, owner)
                    continue
            if when > self.now:
                self.now = when
                self._instant = 0
            self._enqueue(handle, owner)
            is_found = True
        if not is_found:
            raise Stuck(f"No program can run and no timer is set at {self.now:.3f} s.")

    def _schedule(self, handle: asyncio.TimerHandle, owner: Program) -> None:
        when = handle.when()
        if owner is not WORLD:
            when = owner.clock.when(when) + _ROUNDING_S
        self._serial += 1
        heapq.heappush(self._timers, (when, self._draw(), self._serial, handle, owner))

    def _enqueue(self, handle: asyncio.Handle, owner: Program | None = None) -> None:
        owner = owner or _owner(handle)
        if owner.is_dead or self._is_over:
            return
        owner.ready.append(handle)
        if not owner.is_listed:
            self._list(owner)

    def _list(self, owner: Program) -> None:
        is_held = owner.is_frozen or owner.is_dead or owner.clock.asleep_since is not None
        if not owner.is_listed and not is_held:
            owner.is_listed = True
            self._runnable.append(owner)


def _owner(handle: asyncio.Handle) -> Program:
    owner: Program = handle._context.get(program, WORLD)  # type: ignore[attr-defined]
    return owner


@contextmanager
def running(seed: int) -> Iterator[SimLoop]:
    """A loop, with the clocks and the chance of the whole interpreter in its hands meanwhile."""
    loop = SimLoop(seed)
    chance = random.Random(f"chance {seed}")
    before = random.getstate()
    random.seed(seed)

    def utc() -> float:
        return program.get(WORLD).clock.utc(loop.now)

    def monotonic() -> float:
        return program.get(WORLD).clock.monotonic(loop.now)

    def clock_gettime(clock: int) -> float:
        return program.get(WORLD).clock.read(clock, loop.now)

    def token_hex(size: int = 32) -> str:
        return f"{chance.getrandbits(size * 8):0{size * 2}x}"

    patches: list[Any] = [
        patch.object(time, "time", utc),
        patch.object(time, "monotonic", monotonic),
        patch.object(time, "clock_gettime", clock_gettime),
        patch.object(time, "clock_gettime_ns", lambda clock: int(clock_gettime(clock) * 1e9)),
        patch.object(secrets, "token_hex", token_hex),
        patch.object(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4)),
    ]
    for each in patches:
        each.start()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        loop.end_all()
        for each in reversed(patches):
            each.stop()
        random.setstate(before)
        asyncio.set_event_loop(None)
        loop.close()
