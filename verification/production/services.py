"""Services as they run: started in the order they need, checked, started again, ended in reverse."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Final

from signalbox.ops.up.child import BACKOFF_S, Child, Spec
from signalbox.program.errors import Unavailable
from verification.production.compose import Compose, Service, duration_s, size_bytes, start_order
from verification.production.inside import is_contained
from verification.production.launch import Box, Builder
from verification.production.network import Network

STARTING_POLL_S: Final = 1.0
"""Between health checks until the first succeeds; then the file's interval."""
READY_S: Final = 600.0
"""Generous, since a machine may be loaded; a program that keeps crashing is detected apart from this."""
ONCE_S: Final = 300.0
MOST_RESTARTS: Final = 5
"""Ends before readiness after which the start fails: such a program has a fault that an operator should read."""


class ServiceProcess:
    """One service. say: called with sentences a person should read. changed: after each end and restart."""

    def __init__(
        self, name: str, declared: Service, box: Box, builder: Builder, child: Child, say: Callable[[str], None]
    ) -> None:
        self.name = name
        self.declared = declared
        self.child = child
        self._box = box
        self._builder = builder
        self._say = say
        self._began = asyncio.Event()
        self._healthy = asyncio.Event()
        self._completed = asyncio.Event()
        self._conditions = {
            "service_started": self._began,
            "service_healthy": self._healthy,
            "service_completed_successfully": self._completed,
        }

    @property
    def pid(self) -> int:
        """Process id of the program, 0 while it does not run."""
        return self.child.pid

    async def until(self, condition: str) -> None:
        """Wait for a condition of ``depends_on``. Raises :class:`Unavailable` with its last words when it is late."""
        try:
            async with asyncio.timeout(READY_S):
                await self._conditions[condition].wait()
        except TimeoutError:
            what = condition.replace("_", " ").replace("service", self.name)
            raise Unavailable(
                f"not {what} within {READY_S:g} s. Its log, {self.child.log}, ends:\n{self.child.tail()}"
            ) from None

    async def until_ready(self) -> None:
        """Wait for the most that the file lets one know of it."""
        if self.declared.ends:
            await self.until("service_completed_successfully")
        elif self.declared.healthcheck:
            await self.until("service_healthy")
        else:
            await self.until("service_started")

    async def run(self, changed: Callable[[], None]) -> None:
        """Start it and keep it as its restart policy says, until cancelled."""
        if self.declared.ends:
            await self._run_once()
            return
        await self.child.start()
        self._began.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.child.keep(changed))
            if self.declared.healthcheck:
                group.create_task(self._check())

    async def _run_once(self) -> None:
        """Until it has ended well; who waits for that gives up when it takes too long."""
        pauses = chain(BACKOFF_S, repeat(BACKOFF_S[-1]))
        while True:
            try:
                await self.child.run_to_end()
                break
            except Unavailable as error:
                if self.declared.restart != "on-failure":
                    raise
                self._say(error.public_message.partition(". ")[0] + "; trying again")
            await asyncio.sleep(next(pauses))
        self._say(f"{self.name} is done")
        self._completed.set()

    async def run_beside(self, argv: tuple[str, ...], limit_s: float) -> tuple[int, bytes]:
        """Run a command in its container; its exit status and output. Status -1 when it was cut short."""
        if not is_contained(pid := self.pid):
            return -1, b""
        process = await asyncio.create_subprocess_exec(
            *self._builder.beside(self._box, pid, argv),
            env=dict(self._box.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit_s):
                said, _ = await process.communicate()
        except TimeoutError:
            return -1, b""
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        assert process.returncode is not None
        return process.returncode, said

    async def _check(self) -> None:
        """Check its health while it runs, and only report it, as an engine does."""
        health = self.declared.healthcheck
        assert health is not None
        interval_s, timeout_s = duration_s(health.interval), duration_s(health.timeout)
        failed = 0
        while True:
            status, said = await self.run_beside(health.argv, timeout_s)
            failed = failed + 1 if status else 0
            if not status and not self._healthy.is_set():
                self._healthy.set()
                self._say(f"{self.name} is healthy")
            elif failed >= health.retries and self._healthy.is_set():
                self._healthy.clear()
                words = said.decode(errors="replace").strip()[-200:]
                self._say(f"{self.name} is not healthy{f': {words}' if words else ''}")
            await asyncio.sleep(interval_s if self._healthy.is_set() else STARTING_POLL_S)


class Services:
    """All of them."""

    def __init__(
        self,
        compose: Compose,
        boxes: Mapping[str, Box],
        builder: Builder,
        network: Network,
        logs: Path,
        say: Callable[[str], None],
    ) -> None:
        self._compose = compose
        self._network = network
        self._order = start_order(compose.services)
        self.is_settled = False
        """Whether all have been ready; until then a program that ends again and again ends the start."""
        self.all: dict[str, ServiceProcess] = {}
        for name in self._order:
            declared, box = compose.services[name], boxes[name]
            child = Child(_spec(name, declared, box), logs, say)
            self.all[name] = ServiceProcess(name, declared, box, builder, child, say)

    def pids(self) -> dict[str, int]:
        """Process ids by name, of the programs that run now."""
        return {name: one.pid for name, one in self.all.items() if one.pid}

    async def run(self, changed: Callable[[], None]) -> None:
        """Start and keep all of them, until cancelled. changed: called after each end and restart."""
        async with asyncio.TaskGroup() as group:
            for name in self._order:
                group.create_task(self._run(name, changed), name=name)

    async def until_ready(self) -> None:
        """Until each is as ready as the file lets one know."""
        await asyncio.gather(*(one.until_ready() for one in self.all.values()))

    async def stop(self) -> None:
        """End all, what depends on others before them."""
        left = list(reversed(self._order))
        while left:
            needed = {other for name in left for other in self._compose.services[name].depends_on}
            wave = [name for name in left if name not in needed]
            await asyncio.gather(*(self._stop(name) for name in wave))
            left = [name for name in left if name not in wave]

    async def _run(self, name: str, changed: Callable[[], None]) -> None:
        one = self.all[name]
        for other, needed in one.declared.depends_on.items():
            await self.all[other].until(needed.condition)

        def ended_or_back() -> None:
            if not one.pid:
                self._network.end_all(name)
            changed()
            if one.child.restarts >= MOST_RESTARTS and not self.is_settled:
                raise Unavailable(f"{name} ends again and again. Its log, {one.child.log}, ends:\n{one.child.tail()}")

        await one.run(ended_or_back)

    async def _stop(self, name: str) -> None:
        await self.all[name].child.stop()
        self._network.end_all(name)


def _spec(name: str, declared: Service, box: Box) -> Spec:
    spec = Spec(
        name,
        box.argv,
        box.environment,
        ready_s=ONCE_S,
        stop_s=duration_s(declared.stop_grace_period),
        stop_signal=box.image.stop_signal,
    )
    if declared.logging is None:
        return spec
    options = declared.logging.options
    return spec._replace(log_bytes=size_bytes(options.max_size), log_kept=int(options.max_file) - 1)
