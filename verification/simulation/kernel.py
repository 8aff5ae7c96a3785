"""A model of what Signalbox needs of Linux: processes and signals, pipes, flock, parent-death signals.

Each process is a :class:`verification.simulation.loop.Program`, so it can be stopped between any two callbacks. A
message takes a little while, a killed process takes a while to die, and only its death closes what
it held: that is the moment at which others learn of it.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from verification.simulation.loop import WORLD, Clock, Program, SimLoop

SIGKILL: Final = -9
Receiver = Callable[[bytes | None], None]
"""Gets each message of a pipe, and None once the other end is closed for good."""


class Nap(NamedTuple):
    """From a machine's suspend to its resume, true seconds."""

    began: float
    ended: float


class LockFile:
    """One inode in the lock directory. token: what is written in it."""

    def __init__(self) -> None:
        self.token = 0
        self.owner: Description | None = None
        self.waiting: list[tuple[Description, Process]] = []


class Description:
    """An open file description: what an flock belongs to, until the last process that has it is gone."""

    def __init__(self, machine: "Machine", file: LockFile, opener: "Process") -> None:
        self.machine, self.file = machine, file
        self.holders: set[int] = set()
        self.share(opener)

    def share(self, process: "Process") -> None:
        """``process`` inherited it."""
        self.holders.add(process.pid)
        process.opened.append(self)

    def try_lock(self) -> bool:
        """LOCK_EX | LOCK_NB."""
        if self.file.owner is None:
            self.file.owner = self
        return self.file.owner is self

    def wait(self, waiter: "Process") -> None:
        """LOCK_EX: ``waiter`` sleeps in it, and exits once the description has the lock."""
        self.file.waiting.append((self, waiter))
        self.machine.grant(self.file)

    def unlock(self) -> None:
        """LOCK_UN."""
        if self.file.owner is self:
            self.file.owner = None
            self.machine.grant(self.file)

    def close(self, process: "Process") -> None:
        """One process lets go of it."""
        self.file.waiting = [w for w in self.file.waiting if w[1] is not process]
        self.holders.discard(process.pid)
        if not self.holders:
            self.unlock()


class End:
    """One end of a pipe between two processes; messages arrive in order."""

    def __init__(self, machine: "Machine", owner: "Process") -> None:
        self.machine, self.owner = machine, owner
        self.receive: Receiver | None = None
        self.other: End
        self.is_closed = False
        self._arrived: deque[bytes | None] = deque()
        self._on_its_way: deque[bytes | None] = deque()
        owner.ends.append(self)

    def give(self, owner: "Process") -> "End":
        """Give this end to ``owner`` (SCM_RIGHTS, or inherited)."""
        self.owner = owner
        owner.ends.append(self)
        return self

    def listen(self, receive: Receiver) -> None:
        """What has arrived already comes at once."""
        self.receive = receive
        while self._arrived and self.receive is not None:
            self.receive(self._arrived.popleft())

    def send(self, message: bytes) -> bool:
        """False where the other end is closed for good."""
        if self.is_closed or self.other.is_closed:
            return False
        if self.owner.is_running:
            self.other._transmit(message)
        return True

    def close(self) -> None:
        """Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self.receive = None
            if not self.other.is_closed:
                self.other._transmit(None)

    def _transmit(self, message: bytes | None) -> None:
        self._on_its_way.append(message)
        machine = self.machine
        machine.loop.post(self.owner.program, self._deliver, delay=machine.moment())

    def _deliver(self) -> None:
        message = self._on_its_way.popleft()
        if self.is_closed:
            return
        if self.receive is None:
            self._arrived.append(message)
        else:
            self.receive(message)


class Process:
    """One process. status: of its end, None while it lives. on_term: its SIGTERM handler, if it has one.

    death_signal: what it gets when its parent ends. on_exit: called for those that wait for its end. last_words:
    called as it ends, for the oracle. is_large: takes long to die. is_stuck: does not die (D state) before it is reset.
    """

    def __init__(self, machine: "Machine", name: str, parent: "Process | None") -> None:
        self.machine, self.name, self.parent = machine, name, parent
        self.pid = machine.next_pid()
        self.program = Program(f"{name}#{self.pid}", machine.clock)
        self.status: int | None = None
        self.is_running = True
        self.is_stuck = self.was_stuck = self.is_large = False
        self.thawed_at = -1000.0
        self.death_signal = ""
        self.on_term: Callable[[], None] | None = None
        self.on_exit: list[tuple[Process, Callable[[int, int], None]]] = []
        self.last_words: list[Callable[[], None]] = []
        self.ends: list[End] = []
        self.opened: list[Description] = []
        self.children: list[Process] = []
        machine.processes[self.pid] = self
        if parent is not None:
            parent.children.append(self)

    @property
    def is_alive(self) -> bool:
        """Not yet reaped by the kernel: it may be dying, and hold what it held."""
        return self.status is None

    def stop(self) -> None:
        """SIGSTOP."""
        if self.is_running:
            self.machine.loop.freeze(self.program)

    def resume(self) -> None:
        """SIGCONT."""
        if self.program.is_frozen:
            self.thawed_at = self.machine.loop.now
            self.machine.loop.thaw(self.program)

    def kill(self) -> None:
        """SIGKILL: it runs no more, and is gone when the kernel has freed it."""
        if self.is_running:
            self._cease()
            self.machine.loop.post(WORLD, self._gone, SIGKILL, delay=self.machine.teardown(self))

    def exit(self, status: int = 0) -> None:
        """By itself."""
        if self.is_running:
            self._cease()
            self.machine.loop.post(WORLD, self._gone, status, delay=self.machine.moment())

    def terminate(self) -> None:
        """SIGTERM."""
        if not self.is_running:
            return
        if self.on_term is None:
            self.kill()
        else:
            self.machine.loop.post(self.program, self.on_term)

    def watch(self, by: "Process", receive: Callable[[int, int], None]) -> None:
        """Tell ``by`` of its end: pid and status."""
        self.on_exit.append((by, receive))

    def vanish(self) -> None:
        """The machine lost its power: no last act of the kernel's either, but the oracle must know."""
        if self.is_alive:
            self._cease()
            self.status = SIGKILL
            for word in self.last_words:
                word()
            for end in self.ends:
                end.is_closed = True

    def _cease(self) -> None:
        self.is_running = False
        self.machine.loop.kill(self.program)

    def _gone(self, status: int) -> None:
        if self.status is not None:
            return
        if self.is_stuck:  # in the kernel's D state
            self.machine.loop.post(WORLD, self._gone, status, delay=0.5)
            return
        if self.machine.is_asleep:
            self.machine.on_wake.append(partial(self._gone, status))
            return
        self.status = status
        self.machine.processes.pop(self.pid, None)
        for word in self.last_words:
            word()
        for end in self.ends:
            if end.owner is self:
                end.close()
        for description in self.opened:
            description.close(self)
        for child in self.children:
            if child.death_signal == "KILL":
                child.kill()
            elif child.death_signal == "TERM":
                child.terminate()
            else:
                child.parent = None
        for by, receive in self.on_exit:
            self.machine.loop.post(by.program, receive, self.pid, status, delay=self.machine.moment())


class Machine:
    """One host: a kernel, a clock, a lock directory. boot: changes when it restarts.

    naps: how often it was suspended, and is awake again. on_wake: what has to wait for that, each once.
    """

    def __init__(self, loop: SimLoop, name: str, seed: str, clock: Clock) -> None:
        self.loop, self.name, self.clock = loop, name, clock
        self.chance = random.Random(f"machine {name} {seed}")
        self.boots = 1
        self.processes: dict[int, Process] = {}
        self.files: dict[str, LockFile] = {}
        self.latency_s = 0.0002
        self.dying_s = 0.3
        self.naps: list[Nap] = []
        self.on_wake: list[Callable[[], None]] = []
        self._pids = 100

    @property
    def boot(self) -> str:
        """As /proc/sys/kernel/random/boot_id."""
        return f"boot-{self.name}-{self.boots}"

    @property
    def is_asleep(self) -> bool:
        """Between suspend and resume."""
        return self.clock.asleep_since is not None

    def next_pid(self) -> int:
        """Never used twice."""
        self._pids += 1
        return self._pids

    def moment(self) -> float:
        """How long a message, or a wake-up, takes this time."""
        return self.chance.random() * self.latency_s

    def teardown(self, process: Process) -> float:
        """How long the kernel takes to free a killed process (2 GB resident: up to 0.33 s measured)."""
        return 0.002 + self.chance.random() ** 3 * (self.dying_s if process.is_large else 0.003)

    def open(self, path: str, opener: Process) -> Description:
        """O_CREAT: a new description of the file that has this path now."""
        return Description(self, self.files.setdefault(path, LockFile()), opener)

    def unlink(self, path: str) -> None:
        """A person deletes a lock file by hand."""
        self.files.pop(path, None)

    def pipe(self, one: Process, other: Process) -> tuple[End, End]:
        """Two connected ends."""
        ours, theirs = End(self, one), End(self, other)
        ours.other, theirs.other = theirs, ours
        return ours, theirs

    def grant(self, file: LockFile) -> None:
        """Give a free lock to one of the waiters, in no promised order."""
        while file.owner is None and file.waiting:
            place = self.chance.randrange(len(file.waiting))
            description, waiter = file.waiting.pop(place)
            if waiter.is_running:
                file.owner = description
                waiter.exit(0)

    def alarm(
        self, process: Process, clock_id: int, at_s: float, ring: Callable[..., None], *args: object
    ) -> asyncio.TimerHandle:
        """A timerfd, absolute: one on CLOCK_BOOTTIME that was due while the machine slept rings as it wakes."""
        left_s = max(0.0, at_s - self.clock.read(clock_id, self.loop.now)) / self.clock.rate + 1e-6
        late_s = self.moment()
        if clock_id != time.CLOCK_BOOTTIME:
            return self.loop.post(process.program, partial(ring, *args), delay=left_s + late_s)
        ringing = partial(self.loop.post, process.program, partial(ring, *args), delay=late_s)
        return self.loop.post(WORLD, ringing, delay=left_s)

    def suspend(self) -> None:
        """Nothing on it runs. Idempotent."""
        if not self.is_asleep:
            self.loop.suspend(self.clock)

    def resume(self) -> None:
        """Everything goes on at once; what was stopped stays so. Idempotent."""
        if self.clock.asleep_since is None:
            return
        self.naps.append(Nap(self.clock.asleep_since, self.loop.now))
        self.loop.wake(self.clock, [process.program for process in self.processes.values()])
        waiting, self.on_wake = self.on_wake, []
        for act in waiting:
            act()

    def reboot(self) -> None:
        """Every process is gone at once, and with them every lock; the lock files' contents stay."""
        for process in list(self.processes.values()):
            process.vanish()
        self.processes.clear()
        self.resume()
        for file in self.files.values():
            file.owner = None
            file.waiting.clear()
        self.boots += 1
        self.clock.started = self.loop.now
        self.clock.slept = 0.0
