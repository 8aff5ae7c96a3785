"""A stack in the foreground of a terminal: brought up, kept until Ctrl-C, taken down in order."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from signalbox.ops.programlog import ProgramLog, Shown
from signalbox.ops.up.datadir import DataDir
from signalbox.program import log
from signalbox.program.errors import SignalboxError

UP_FILE: Final = "up.json"
"""File in the stack's data folder that describes the running stack; it exists only while the stack runs."""


class Stoppable(Protocol):
    """A stack."""

    async def stop(self) -> None:
        """End all of it, however much of it was started."""


S = TypeVar("S", bound=Stoppable)


class Sayer:
    """Prints a sentence after the seconds since the start; one that cannot be written is lost.

    shown: takes it instead, where logs go the same way: they may have filled it, and a print would wait for the reader.
    """

    def __init__(self, shown: Shown | None = None) -> None:
        self._began = time.monotonic()
        self._shown = shown

    def __call__(self, sentence: str) -> None:
        """Print it."""
        line = f"[{time.monotonic() - self._began:6.1f} s] {sentence}"
        if self._shown is not None:
            self._shown(f"{line}\n".encode())
            return
        with contextlib.suppress(OSError):
            print(line, flush=True)


def run(
    command: str,
    folder: Path,
    make: Callable[[DataDir, Sayer], S],
    work: Callable[[S], Coroutine[Any, Any, None]],
    *,
    shows_logs: bool = False,
) -> int:
    """Make a stack in ``folder`` and ``work`` on it until Ctrl-C or SIGTERM.

    Returns the exit status of ``signalbox COMMAND``; faults are said in words. This process's own log lines go to
    ``logs/COMMAND.log`` in ``folder``, beside those of the programs: the terminal is for sentences. shows_logs: they
    go to standard output too.
    """

    def shown() -> Shown | None:
        return Shown(sys.stdout.fileno()) if shows_logs else None

    say = Sayer(shown())
    try:
        with DataDir(folder) as data, _logged(data.path / "logs" / f"{command}.log", shown()):
            asyncio.run(_run(data, say, make, work))
    except SignalboxError as error:
        print(f"signalbox {command}: {error.public_message}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def _logged(path: Path, shown: Shown | None) -> Iterator[None]:
    log_file = ProgramLog(path, on_output=shown)
    try:
        with os.fdopen(log_file.open(), "w", buffering=1) as lines, contextlib.redirect_stderr(lines):
            yield
    finally:
        log_file.catch_up()


def note(data: DataDir, doc: Mapping[str, Any]) -> None:
    """Say in :data:`UP_FILE` what runs. Without room for it the stack runs on, and the file is as it was."""
    try:
        data.write_json(UP_FILE, doc)
    except OSError as error:
        log.warning("up.file_not_written", reason=str(error))


async def _run(
    data: DataDir, say: Sayer, make: Callable[[DataDir, Sayer], S], work: Callable[[S], Coroutine[Any, Any, None]]
) -> None:
    stop = asyncio.Event()
    heed_signals(asyncio.get_running_loop(), stop)
    stack = make(data, say)
    (data.path / UP_FILE).unlink(missing_ok=True)
    try:
        await _until(stop, work(stack))
    finally:
        say("stopping")
        (data.path / UP_FILE).unlink(missing_ok=True)
        await stack.stop()
    say(f"stopped; your data stays in {data.path}")


def heed_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Have Ctrl-C and its like set ``stop``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    # Ctrl-Z: stopped, this process copies no log, and every program stands still once its pipe is full.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` to its end, or cancel it when ``stop`` is set first."""
    task = asyncio.ensure_future(work)
    waiter = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    except BaseExceptionGroup as faults:
        raise _first(faults) from None
    finally:
        for pending in (task, waiter):
            pending.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show to the operator: of several, the first that is a :class:`SignalboxError`."""
    ours = faults.subgroup(SignalboxError) or faults
    fault: BaseException = ours
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault
