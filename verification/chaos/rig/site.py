"""A site: a running stack that faults are caused in, and what is known of it meanwhile.

There are two: the rig (:mod:`verification.chaos.rig.rig`), which starts its programs itself, and a production stack
that runs already (:mod:`verification.chaos.rig.composed`).
"""

import asyncio
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.bus.storage import list_streams
from signalbox.program.errors import SignalboxError
from signalbox.wire.names import Bucket, key
from tests.rigs.outage import becomes
from verification.chaos.evidence import intervals
from verification.chaos.evidence.journal import Entry, Journal, now
from verification.chaos.evidence.recorder import Recorder
from verification.chaos.traffic.load import CANARY, Load

GUARD: Final = b"workers.guard.process"
"""Stands on every guard's command line and on no runner's."""
DECISIVE: Final = ("JOBS", "STATE", "KV_leases", "KV_waiters", "KV_keys", "KV_workers")
"""Streams that decisions rest on."""


class Site(ABC):
    """history: folder of what happens. node_count: of NATS. coming_back: programs that were ended and are not ready."""

    recorder: Recorder
    load: Load
    slow = "slow"
    """Name of the model that takes its time."""

    def __init__(self, history: Path, *, node_count: int) -> None:
        self.history = history
        self.node_count = node_count
        self.faults = Journal(history / "faults.jsonl")
        self.tasks: set[asyncio.Task[None]] = set()
        self.broken: list[str] = []
        self.coming_back: set[str] = set()
        self.secrets = {"a caller's number": CANARY}
        self.began_after = 0
        """Sequence of the last record that was there before."""
        self.kept: dict[str, Entry] = {}
        """Records as they were when read; some of them are removed before the end."""

    @property
    @abstractmethod
    def bus(self) -> Bus:
        """Our own connection to NATS."""

    @property
    @abstractmethod
    def front_url(self) -> str:
        """Where callers call."""

    @abstractmethod
    async def publish_models(self) -> None:
        """Have ``half`` and :attr:`slow` served."""

    @abstractmethod
    async def add_key(self, *, name: str) -> str:
        """The text of a key of an account of its own, which may stand in no log."""

    @property
    @abstractmethod
    def workers(self) -> Sequence[str]:
        """Names of all workers."""

    @abstractmethod
    def pid_of(self, name: str) -> int:
        """Process id of a program, 0 while it does not run."""

    @abstractmethod
    async def kill(self, name: str) -> None:
        """SIGKILL to a program that runs; it is gone after this."""

    @abstractmethod
    async def bring_back(self, name: str) -> None:
        """Returns when a program that was ended is ready again."""

    @abstractmethod
    async def calm(self) -> None:
        """End all network faults and thaw all processes."""

    # -- who holds what --------------------------------------------------------------------------------

    def holder(self) -> str:
        """The name of the worker that holds a GPU, empty where none does."""
        return next((str(h["owner"]) for h in self.recorder.holders.values()), "")

    def newest_token(self) -> int:
        """The newest token that was seen."""
        return max((int(h["token"]) for h in self.recorder.holders.values()), default=0)

    async def refresh(self) -> None:
        """Read the leases from the leader: changes are not republished while NATS is dead."""
        with suppress(SignalboxError):
            for stored in await self.bus.list_latest(Bucket.LEASES.stream, [key(Bucket.LEASES, ">")]):
                self.recorder.learn(stored)

    # -- processes -------------------------------------------------------------------------------------

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal. Returns whether the process existed."""
        if pid <= 1:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def entered(self) -> int:
        """The newest token a runner was let in with, by the interval log."""
        lines = intervals.read(self.history / "intervals.log")
        return max((line.token for line in lines if line.kind == "in"), default=0)

    def are_inside(self) -> bool:
        """Whether every GPU in use has a holder whose present runner was let in."""
        lines = intervals.read(self.history / "intervals.log")
        inside = {line.gpu: (line.token, line.pid) for line in lines if line.kind == "in"}
        return all(
            inside.get(gpu) == (held["token"], self.runner_of(str(held["owner"])))
            for gpu, held in self.recorder.holders.items()
        )

    def guard_of(self, worker: str) -> int:
        """Its guard's process id, 0 where there is none now."""
        return next(iter(children_of(self.pid_of(worker), GUARD)), 0)

    def runner_of(self, worker: str) -> int:
        """Its runner's process id, 0 where there is none now."""
        guard = self.guard_of(worker)
        return next(iter(children_of(guard, b"--gpu", but=GUARD)), 0) if guard else 0

    def is_poised(self, worker: str) -> bool:
        """Whether it would take over at once: its guard has a runner, and a child that waits for the flock."""
        guard = self.guard_of(worker)
        is_waiting = bool(guard and children_of(guard, GUARD))  # or a runner to be, hence the rest
        return is_waiting and bool(children_of(guard, b"--gpu", but=GUARD))

    def background(self, work: Any) -> None:
        """Run beside the next faults. A failure here fails the run."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001  the edge of a task
                self.finding(f"{type(error).__name__}: {error}")

        task = asyncio.create_task(guarded())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def finding(self, text: str) -> None:
        """Write a finding down for the laws: the run has failed."""
        self.broken.append(text)
        self.faults.note(event="finding", text=text)

    # -- conditions ------------------------------------------------------------------------------------

    async def patiently(self, act: Any, *, limit_s: float = 60.0) -> Any:
        """Repeat a request until NATS answers it."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return await act()
            except SignalboxError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def until(self, condition: Any, *, limit_s: float = 60.0, what: str = "") -> float:
        """Seconds until ``condition()`` holds, looked at after each recorded change and every 50 ms."""
        began = now()
        while not condition():
            if now() - began > limit_s:
                raise AssertionError(f"not within {limit_s:g} s: {what}")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self.recorder.changed.wait()
        return now() - began

    async def new_holder(self, token_was: int, *, limit_s: float = 60.0) -> float:
        """Seconds until a worker holds a GPU under a newer token."""
        return await self.until(
            lambda: self.newest_token() > token_was, limit_s=limit_s, what=f"a holder after token {token_was}"
        )

    async def nats_serves(self, *, limit_s: float = 60.0) -> float:
        """Seconds until every stream that decisions rest on has a leader and answers."""

        async def answers() -> bool:
            try:
                for stream in DECISIVE:
                    info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
                    if self.node_count > 1 and not info["cluster"].get("leader"):
                        return False
            except SignalboxError:
                return False
            return True

        return await becomes(answers, limit_s=limit_s)

    async def leader_name(self, stream: str) -> str:
        """The name of the node that leads a stream, empty while no node answers."""
        try:
            info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        except SignalboxError:
            return ""
        return str(info["cluster"].get("leader") or "")

    async def behind(self) -> set[str] | None:
        """Streams with a replica that is offline or not current, or without a leader; None where no server answers."""
        try:
            streams = await list_streams(self.bus)
        except SignalboxError:
            return None
        unled = {name for name, info in streams.infos.items() if not info["cluster"].get("leader")}
        return unled | {name for name, late in streams.late_replicas().items() if late}

    async def is_replicated(self) -> bool:
        """Whether every replica of every stream is current, so that the next node may die."""
        return await self.behind() == set()


def children_of(pid: int, mark: bytes, *, but: bytes = b"\xff") -> list[int]:
    """Children whose command line holds ``mark`` and not ``but``."""
    found = []
    try:
        names = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    for name in names:
        with suppress(OSError):
            argv = Path(f"/proc/{name}/cmdline").read_bytes()
            if mark in argv and but not in argv:
                found.append(int(name))
    return found
