"""``signalbox up``: bring the stack up, show that it works, keep it up, take it down in order."""

import argparse
import os

from signalbox.ops import foreground
from signalbox.ops.foreground import UP_FILE
from signalbox.ops.up.first import Greeting, show, train
from signalbox.ops.up.options import add_arguments, parsed
from signalbox.ops.up.stack import UpStack
from signalbox.ops.up.tyk import Tyk, find
from signalbox.program.tasks import TaskGroup

__all__ = ["add_arguments", "bring_up", "note", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM. Returns the exit status; faults are said in words."""
    options = parsed(arguments)
    return foreground.run("up", options.data, lambda data, say: UpStack(options, data, say), _bring_up_and_keep)


async def _bring_up_and_keep(stack: UpStack) -> None:
    shown = await bring_up(stack)
    note(stack, shown)
    _tell(stack, shown)
    await stack.keep(lambda: note(stack, shown))


async def bring_up(stack: UpStack) -> Greeting:
    """Start all that ``stack.options`` ask for and show that it answers. Raises what the first program to fail says."""
    options, say = stack.options, stack.say
    front = find(options.front)
    say("starting NATS")
    await stack.start_nats()
    say(f"starting {'Tyk and its plugin' if front else 'the edge'}, the console and the workers")
    async with TaskGroup() as group:
        models = group.create_task(train(stack))
        if front:
            group.create_task(Tyk(stack, front).start())
        else:
            group.create_task(stack.start_edge())
        group.create_task(stack.start_console())
        group.create_task(stack.start_outbound())
        group.create_task(stack.start_host())
    return await show(stack, models.result(), options.repositories)


def note(stack: UpStack, shown: Greeting) -> None:
    """Say in ``up.json`` what runs now."""
    doc = {
        "front": stack.front_url,
        "grpc": stack.grpc_address,
        "console": stack.console_url,
        "nats": stack.nats_url,
        **shown.document(),
        "metrics": stack.metrics(),
        "processes": {"up": os.getpid(), **stack.pids()},
        "data": str(stack.data.path),
    }
    foreground.note(stack.data, doc)


def _tell(stack: UpStack, shown: Greeting) -> None:
    console, up_file = stack.console_url, stack.data.path / UP_FILE
    print(f"\n  front    {stack.front_url}")
    print(f"  gRPC     {stack.grpc_address}")
    print(f"  console  {console}   log in as {shown.user} with {shown.password}")
    if shown.api_key:
        print(f"  API key  {shown.api_key}")
        print(f"""
  curl {stack.front_url}/v1/models/half_plus_two:predict \\
    -H 'Authorization: Bearer {shown.api_key}' -d '{{"instances": [1.0, 2.0, 5.0]}}'""")
    print(f"\n  All of this is in {up_file}. Ctrl-C stops everything.\n", flush=True)
