"""A runner on a simulated kernel, and the device it uses, which remembers every stay.

It speaks the production frames (:mod:`workers.runner.frames`) and computes nothing: what a job does to it
stands in the job's own bytes, so that a test decides, and the answer names the job, so that a checker sees
whose it is.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from signalbox.program.errors import InvalidInput, LeaseLost, ModelError, NotFound
from verification.simulation.kernel import End, Machine, Process
from workers.runner import frames

FRAME_LIMIT_BYTES: Final = 1 << 20


class Task(msgspec.Struct, frozen=True):
    """What a simulated job does: ``fine``, ``refused`` (its input), ``crash``, ``hang``; and for how long."""

    job: str
    does: str = "fine"
    seconds: float = 0.01


encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Task).decode


@dataclass
class Stay:
    """From a runner's entry into a device to its own word or its death. Times are true seconds.

    is_excused: its guard was stopped, or it was stuck in the kernel: then it may stay beyond its deadline, alone.
    guard_woke_at: when its guard last ran again after having been stopped, before the entry.
    """

    boot: str
    runner: int
    token: int
    came: float
    machine: Machine
    left: float | None = None
    is_excused: bool = False
    guard_woke_at: float = -math.inf


@dataclass
class Device:
    """One device, as its interval log tells."""

    id: str
    stays: list[Stay] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)

    def enter(self, stay: Stay) -> None:
        """Check that no other runner is inside."""
        self.overlaps += [
            f"{stay.boot} (token {stay.token}) entered {self.id} at {stay.came:.3f} while"
            f" {other.boot} (token {other.token}) was inside"
            for other in self.stays
            if other.left is None
        ]
        self.stays.append(stay)


class Sockets(NamedTuple):
    """A runner's ends: to its supervisor, for its beats, and to its guard."""

    data: End
    beats: End
    words: End


class SimRunner:
    """One runner process: single-threaded but for the watch on its sockets, and its beats.

    on_run: told the id of each job that is given to it.
    """

    def __init__(
        self,
        process: Process,
        sockets: Sockets,
        device: Device,
        boot: str,
        import_s: float,
        on_run: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.process, self.device, self.boot = process, device, boot
        self._on_run = on_run
        self.data, self.beats, self.words = (end.give(process) for end in sockets)
        self.stay: Stay | None = None
        self.loaded: set[tuple[str, int]] = set()
        self.splitter = frames.Splitter(FRAME_LIMIT_BYTES)
        self.received: deque[str] = deque()
        self.asked: deque[bytes] = deque()
        self.awake = asyncio.Event()
        process.death_signal = "KILL"
        process.is_large = True
        process.last_words.append(self._is_out)
        self.data.listen(self._on_data)
        self.words.listen(self._on_report)
        process.machine.loop.spawn(process.program, self._serve(import_s))
        process.machine.loop.spawn(process.program, self._beat())

    def _on_data(self, message: bytes | None) -> None:
        if message is None:
            self.process.exit(1)
        else:
            self.asked.append(message)
            self.awake.set()

    def _on_report(self, message: bytes | None) -> None:
        if message is None:
            self.process.exit(1)
        else:
            self.received.append(message.decode())
            self.awake.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(frames.BEAT_S)
            self.beats.send(b"\x0e")

    async def _serve(self, import_s: float) -> None:
        await asyncio.sleep(import_s)
        self._send(frames.RunnerStarted(self.process.pid, import_s))
        while True:
            if self.received:
                self._obey(self.received.popleft())
            elif self.asked:
                for body in self.splitter.feed(self.asked.popleft()):
                    self._send(await self._answer(frames.request(body)))
            else:
                self.awake.clear()
                await self.awake.wait()

    def _obey(self, word: str) -> None:
        verb, _, number = word.partition(" ")
        if verb == "enter":
            if self.stay is None:
                machine, guard = self.process.machine, self.process.parent
                assert guard is not None
                self.stay = Stay(
                    self.boot,
                    self.process.pid,
                    int(number),
                    machine.loop.now,
                    machine,
                    is_excused=guard.program.is_frozen,  # this runner was stopped before it had received the word
                    guard_woke_at=guard.thawed_at,
                )
                self.device.enter(self.stay)
            self.words.send(f"in {self.stay.token}".encode())
        else:
            self._is_out()
            self.words.send(b"left")

    def _is_out(self) -> None:
        if self.stay is not None:
            self.stay.left = self.process.machine.loop.now
            self.stay = None

    async def _answer(self, request: frames.Request) -> frames.Answer:
        if self.stay is None:
            return frames.RequestFailed(request.id, LeaseLost.code, "The runner is outside the device.")
        if isinstance(request, frames.Load):
            await asyncio.sleep(0.05)
            self.loaded.add((request.model, request.version))
            return frames.VersionLoaded(request.id, 1 << 20, 0.05, 0, {})
        if isinstance(request, frames.Unload):
            self.loaded.discard((request.model, request.version))
            return frames.VersionUnloaded(request.id)
        if isinstance(request, frames.TryJoining | frames.RunShadow):  # no model here asks for either
            return frames.RequestFailed(request.id, NotFound.code, "Nothing is tried here.")
        if request.token != self.stay.token:
            return frames.RequestFailed(request.id, LeaseLost.code, "Another token.")
        if (request.model, request.version) not in self.loaded:
            return frames.RequestFailed(request.id, NotFound.code, "Not loaded.")
        return await self._run(request)

    async def _run(self, request: frames.RunSignature) -> frames.Answer:
        tasks = [_decode(body) for body in request.inputs]
        does = {task.does for task in tasks}
        for task in tasks:
            self._on_run(task.job)
        if "hang" in does:
            await asyncio.sleep(3600.0)
        await asyncio.sleep(max(task.seconds for task in tasks))
        if "crash" in does:
            self.process.exit(70)
            await asyncio.sleep(3600.0)
        if "refused" in does:
            error = InvalidInput if len(tasks) == 1 else ModelError
            return frames.RequestFailed(request.id, error.code, "The model refuses its input.")
        return frames.Ran(request.id, 0.01, [task.job.encode() for task in tasks], {})

    def _send(self, answer: frames.Answer) -> None:
        self.data.send(frames.pack(answer))
