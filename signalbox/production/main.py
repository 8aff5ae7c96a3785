"""``signalbox production``: bring the stack up, show that it works, keep it up, take it down in order."""

import argparse
import asyncio
import sys

from signalbox import log
from signalbox.errors import SignalboxError
from signalbox.production.options import Options, parsed
from signalbox.production.stack import MODELS_INSIDE, Stack
from signalbox.up.first import Shown, show
from signalbox.up.ground import DataDir
from signalbox.up.main import UP_FILE, Sayer, heed_signals, until


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM. Returns the exit status; faults are said in words."""
    try:
        options = parsed(arguments)
        with DataDir(options.data) as data:
            return asyncio.run(_run(options, data))
    except SignalboxError as error:
        print(f"signalbox production: {error.public_message}", file=sys.stderr)
        return 1


async def _run(options: Options, data: DataDir) -> int:
    say = Sayer()
    stop = asyncio.Event()
    heed_signals(asyncio.get_running_loop(), stop)
    stack = Stack(options, data, say)
    (data.path / UP_FILE).unlink(missing_ok=True)
    for sentence in stack.left_out():
        say(sentence)
    try:
        await until(stop, _up(stack))
    finally:
        say("stopping")
        (data.path / UP_FILE).unlink(missing_ok=True)
        await stack.stop()
    say(f"stopped; your data stays in {data.path}")
    return 0


async def _up(stack: Stack) -> None:
    """Start everything, show that it answers, and keep it, until cancelled."""
    await stack.make()
    shown: Shown | None = None

    def changed() -> None:
        if shown is not None:
            _write(stack, shown)

    async with asyncio.TaskGroup() as group:
        group.create_task(stack.services.run(changed))
        stack.say("starting the services in the order that they need")
        training = group.create_task(stack.train())
        await stack.until_ready()
        await training
        shown = await show(stack, MODELS_INSIDE)
        stack.services.is_settled = True
        _write(stack, shown)
        _tell(stack, shown)


def _write(stack: Stack, shown: Shown) -> None:
    """Say in :data:`UP_FILE` what runs. Without room for it the stack runs on, and the file is as it was."""
    doc = {
        **stack.document(),
        "api_key": shown.api_key,
        "login": {"user": shown.user, "password": shown.password},
    }
    try:
        stack.data.write_json(UP_FILE, doc)
    except OSError as error:
        log.warning("production.file_not_written", reason=str(error))


def _tell(stack: Stack, shown: Shown) -> None:
    print(f"\n  front    {stack.front_url}   (past the forwarder: {stack.direct_front_url})")
    print(f"  console  {stack.console_url}   log in as {shown.user} with {shown.password}")
    print(f"  API key  {shown.api_key}")
    print(
        f"\n  All of this is in {stack.data.path / UP_FILE}. Ctrl-C stops everything.\n", flush=True
    )
