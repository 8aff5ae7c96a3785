"""``make production``: bring the stack up, show that it works, keep it up, take it down in order."""

import argparse
import asyncio
import sys

from signalbox.ops import foreground
from signalbox.ops.foreground import UP_FILE
from signalbox.ops.up.first import Greeting, show
from verification.production.options import add_arguments, parsed
from verification.production.stack import MODELS_INSIDE, ProductionStack


def main() -> int:
    """Run until Ctrl-C or SIGTERM. Returns the exit status; faults are said in words."""
    parser = argparse.ArgumentParser(prog="python -m verification.production", description=__doc__)
    add_arguments(parser)
    options = parsed(parser.parse_args())
    return foreground.run(
        "production", options.data, lambda data, say: ProductionStack(options, data, say), _bring_up_and_keep
    )


async def _bring_up_and_keep(stack: ProductionStack) -> None:
    for sentence in stack.left_out():
        stack.say(sentence)
    await stack.make()
    shown: Greeting | None = None

    def note() -> None:
        if shown is not None:
            foreground.note(stack.data, {**stack.document(), **shown.document()})

    async with asyncio.TaskGroup() as group:
        group.create_task(stack.services.run(note))
        stack.say("starting the services in the order that they need")
        training = group.create_task(stack.train())
        await stack.until_ready()
        await training
        shown = await show(stack, MODELS_INSIDE)
        stack.services.is_settled = True
        note()
        _tell(stack, shown)


def _tell(stack: ProductionStack, shown: Greeting) -> None:
    print(f"\n  front    {stack.front_url}   (past the forwarder: {stack.direct_front_url})")
    print(f"  gRPC     {stack.grpc_address}")
    print(f"  console  {stack.console_url}   log in as {shown.user} with {shown.password}")
    print(f"  API key  {shown.api_key}")
    print(f"\n  All of this is in {stack.data.path / UP_FILE}. Ctrl-C stops everything.\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
