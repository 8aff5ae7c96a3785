"""``signalbox up``: bring the stack up, show that it works, keep it up, take it down in order."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from signalbox import log
from signalbox.errors import SignalboxError
from signalbox.up.first import Shown, show, train
from signalbox.up.ground import DataDir
from signalbox.up.options import Options, parsed
from signalbox.up.stack import Stack
from signalbox.up.tyk import Tyk, find

UP_FILE: Final = "up.json"
T = TypeVar("T")


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM. Returns the exit status; faults are said in words."""
    try:
        options = parsed(arguments)
        with DataDir(options.data) as data:
            return asyncio.run(_up(options, data))
    except SignalboxError as error:
        print(f"signalbox up: {error.public_message}", file=sys.stderr)
        return 1


async def _up(options: Options, data: DataDir) -> int:
    say = Sayer()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    heed_signals(loop, stop)
    stack = Stack(options, data, say)
    (data.path / UP_FILE).unlink(missing_ok=True)
    try:
        shown = await until(stop, bring_up(stack))
        if shown is not None:
            _write(stack, shown)
            _tell(stack, shown)
            await until(stop, stack.keep(lambda: _write(stack, shown)))
    finally:
        say("stopping")
        (data.path / UP_FILE).unlink(missing_ok=True)
        await stack.stop()
    say(f"stopped; your data stays in {data.path}")
    return 0


def heed_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Have Ctrl-C and its like set ``stop``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    # Ctrl-Z: stopped, we would copy no log, and every program would stand still once its pipe is full.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)


async def bring_up(stack: Stack) -> Shown:
    """Start all that ``stack.options`` ask for and show that it answers. Raises what the first program to fail says."""
    options, say = stack.options, stack.say
    front = find(options.front)
    say("starting NATS")
    await stack.start_nats()
    say(f"starting {'Tyk and its plugin' if front else 'the edge'}, the console and the workers")
    async with asyncio.TaskGroup() as group:
        models = group.create_task(train(stack))
        if front:
            group.create_task(Tyk(stack, front).start())
        else:
            group.create_task(stack.start_edge())
        if options.has_console:
            group.create_task(stack.start_console())
        for number in range(1, options.workers + 1):
            group.create_task(stack.start_worker(number))
    return await show(stack, models.result())


async def until(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What ``work`` returns, or None when ``stop`` is set first; then ``work`` is cancelled."""
    task = asyncio.ensure_future(work)
    waiter = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    except BaseExceptionGroup as faults:
        raise _first(faults) from None
    finally:
        for pending in (task, waiter):
            pending.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one fault a person should read first: of several, the first that is ours."""
    ours = faults.subgroup(SignalboxError) or faults
    fault: BaseException = ours
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def _write(stack: Stack, shown: Shown) -> None:
    """Say in :data:`UP_FILE` what runs. Without room for it the stack runs on, and the file is as it was."""
    doc = {
        "front": stack.front_url,
        "console": stack.console_url,
        "nats": stack.nats_url,
        "api_key": shown.api_key,
        "login": {"user": shown.user, "password": shown.password},
        "metrics": stack.metrics(),
        "processes": {"up": os.getpid(), **stack.pids()},
        "data": str(stack.data.path),
    }
    try:
        stack.data.write_json(UP_FILE, doc)
    except OSError as error:
        log.warning("up.file_not_written", reason=str(error))


def _tell(stack: Stack, shown: Shown) -> None:
    console, up_file = stack.console_url, stack.data.path / UP_FILE
    print(f"\n  front    {stack.front_url}")
    print(f"  console  {console}   log in as {shown.user} with {shown.password}")
    if shown.api_key:
        print(f"  API key  {shown.api_key}")
        print(f"""
  curl {stack.front_url}/v1/models/half_plus_two:predict \\
    -H 'Authorization: Bearer {shown.api_key}' -d '{{"instances": [1.0, 2.0, 5.0]}}'""")
    print(f"\n  All of this is in {up_file}. Ctrl-C stops everything.\n", flush=True)


class Sayer:
    """Prints a sentence with the seconds since the start before it; one that cannot be written is lost."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, sentence: str) -> None:
        """Print it."""
        with contextlib.suppress(OSError):
            print(f"[{time.monotonic() - self._began:6.1f} s] {sentence}", flush=True)
