"""Starts, watches, restarts and stops one program of the stack as a child process.

A child has a session of its own, so that Ctrl-C in a terminal reaches only this process, which stops the stack in
order. The kernel kills the child when this process ends for any reason.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.ops.programlog import KEPT, LIMIT_BYTES, ProgramLog
from signalbox.program.errors import Unavailable

READY_POLL_S: Final = 0.05
"""Only while something starts; a running stack polls nothing."""
BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses before a restart; the last one repeats. A child that ran ``STEADY_S`` starts over."""
STEADY_S: Final = 30.0
TAIL_LINES: Final = 12
_REASON_CHARACTERS: Final = 200
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


async def at_once() -> bool:
    """Ready as soon as it runs."""
    return True


class Spec(NamedTuple):
    """What to run. ready: asked until true; ready_s: how long at most. stop_s: grace after ``stop_signal``.

    on_output, log_bytes, log_kept: see :class:`ProgramLog`.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready: Callable[[], Awaitable[bool]] = at_once
    ready_s: float = 60.0
    stop_s: float = 10.0
    stop_signal: signal.Signals = signal.SIGTERM
    on_output: Callable[[bytes], None] | None = None
    log_bytes: int = LIMIT_BYTES
    log_kept: int = KEPT


class Child:
    """A running program. say: called with sentences a person should read.

    is_ready: its present process has become ready. since: UTC seconds of the start of that, 0 = there is none. why: its
    last start failed, in words; empty from the moment at which it is ready.
    """

    def __init__(self, spec: Spec, log_dir: Path, say: Callable[[str], None]) -> None:
        self.spec = spec
        self.log = log_dir / f"{spec.name}.log"
        self._output = ProgramLog(self.log, limit_bytes=spec.log_bytes, kept=spec.log_kept, on_output=spec.on_output)
        self.restarts = 0
        self.is_ready = False
        self.since = 0.0
        self.why = ""
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = asyncio.Event()
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int:
        """Process id, 0 while it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    async def start(self) -> None:
        """Run it and wait until it is ready. Raises :class:`Unavailable` with the end of its log."""
        await self._spawn()
        await self._become_ready()

    async def run_to_end(self) -> None:
        """Run it until it ends by itself. Raises :class:`Unavailable` when it fails."""
        await self._spawn()
        assert self._process is not None
        try:
            async with asyncio.timeout(self.spec.ready_s):
                code = await self._process.wait()
            self._output.catch_up()
        except TimeoutError:
            await self._kill()
            limit = f"{self.spec.name} did not end within {self.spec.ready_s:g} s."
            raise Unavailable(f"{limit} {self._last_words()}") from None
        if code:
            raise Unavailable(f"{self.spec.name} {_ending(code)}. {self._last_words()}")

    async def keep(self, changed: Callable[[], None], began: Callable[[], None] = lambda: None) -> None:
        """Have it run until :meth:`stop`: start it where it was not started yet, and again whenever it ends.

        changed: called after each end, and whenever it has become ready. began: called when a process was started.
        """
        failures, loop = 0, asyncio.get_running_loop()
        is_first, started_at = self._process is None, loop.time()
        while not self._is_stopping.is_set():
            if not is_first:
                ending = _ending(await self._process.wait()) if self._process is not None else "did not start"
                if self._is_stopping.is_set():
                    return
                self.is_ready, self.since = False, 0.0
                failures = 0 if loop.time() - started_at > STEADY_S else failures
                pause_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
                failures += 1
                self._say(f"{self.spec.name} {ending}; starting it again in {pause_s:g} s")
                changed()
                if await self._is_stopped_within(pause_s):
                    return
            started_at = loop.time()
            if not await self._run_again(changed, began, is_first=is_first):
                return
            is_first = False

    async def _run_again(self, changed: Callable[[], None], began: Callable[[], None], *, is_first: bool) -> bool:
        """Start it, ready or not; False where it is to be stopped."""
        try:
            async with self._starting:
                if self._is_stopping.is_set():
                    return False
                await self._spawn()
                if self._is_stopping.is_set():  # meanwhile
                    await self._end()
                    return False
            self.restarts += not is_first
            began()
            await self._become_ready()
        except Unavailable as error:
            if not self._is_stopping.is_set():
                self._say(error.public_message)
            await self._kill()
            return True
        changed()  # first: who learns that it is back reads of it in up.json
        self._say(f"{self.spec.name} is {'up' if is_first else 'back'} (pid {self.pid})")
        return True

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._is_stopping.wait()
        except TimeoutError:
            return False
        return True

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal. Does nothing while it does not run."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; :meth:`keep` starts it again. Does nothing while it does not run."""
        if self._process is not None and self._process.returncode is None:
            # It may have ended and been reaped, and the loop has not been told yet.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        """Its stop signal, then SIGKILL after the grace period. Idempotent."""
        self._is_stopping.set()
        await self._end()
        self._output.catch_up()

    @contextlib.asynccontextmanager
    async def ended(self) -> AsyncIterator[None]:
        """End its process as :meth:`stop` does; :meth:`keep` starts another once this is left."""
        async with self._starting:
            await self._end()
            yield

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(self.spec.stop_signal)
        try:
            async with asyncio.timeout(self.spec.stop_s):
                await process.wait()
        except TimeoutError:
            self._say(f"{self.spec.name} did not end within {self.spec.stop_s:g} s; killed")
            await self._kill()

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of its log."""
        return self._output.tail(lines)

    async def _spawn(self) -> None:
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before the line above
                os.kill(os.getpid(), signal.SIGKILL)

        output = self._output.open()
        self.is_ready = False
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.spec.argv,
                env=dict(self.spec.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent,  # calls nothing but the kernel
            )
            self.since = time.time()
        except OSError as error:
            self.why = f"{self.spec.name} cannot be started: {error.strerror}: {self.spec.argv[0]}"
            raise Unavailable(f"{self.why}.") from error
        finally:
            os.close(output)

    async def _become_ready(self) -> None:
        name, process = self.spec.name, self._process
        assert process is not None
        try:
            async with asyncio.timeout(self.spec.ready_s):
                while not await self.spec.ready():
                    if process.returncode is not None:
                        ending = _ending(process.returncode)
                        self.why = self._reason(f"{name} {ending} while starting")
                        raise Unavailable(f"{name} {ending} while starting. {self._last_words()}")
                    await asyncio.sleep(READY_POLL_S)
                self.is_ready, self.why = True, ""
        except TimeoutError:
            self.why = self._reason(f"{name} was not ready within {self.spec.ready_s:g} s")
            raise Unavailable(f"{name} was not ready within {self.spec.ready_s:g} s. {self._last_words()}") from None

    async def _kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    def _reason(self, what: str) -> str:
        """What has happened, with the last line of its log, as far as that fits a document."""
        last = self.tail(1).strip()
        return f"{what}: {last[:_REASON_CHARACTERS]}" if last else what

    def _last_words(self) -> str:
        return f"Its log, {self.log}, ends:\n{self.tail()}"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
