"""What each command on NATS has: a connection as the admin, and differences told as an exit status."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from signalbox.bus import queues
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.settings import PREFIX, Wire, load

_EXIT_DIFFERS: Final = 1


def with_bus(act: Callable[[Bus, argparse.Namespace], Coroutine[Any, Any, int]], arguments: argparse.Namespace) -> int:
    """Run ``act`` on the NATS that the environment names; its exit status."""
    settings = load(Wire, PREFIX, os.environ)
    log.configure("WARNING", program="signalbox")

    async def run() -> int:
        async with await Bus.connect(settings, role="admin", name="cli") as bus:
            return await act(bus, arguments)

    return asyncio.run(run())


def with_both(
    act: Callable[[Bus, Bus, argparse.Namespace], Coroutine[Any, Any, int]], arguments: argparse.Namespace
) -> int:
    """Run ``act`` with a connection to the account of queues too, which may be the same one; its exit status."""

    async def run(bus: Bus, given: argparse.Namespace) -> int:
        if not bus.settings.queues_nats_user:
            return await act(bus, bus, given)
        async with await queues.connect(bus.settings, role="admin") as queue_bus:
            return await act(bus, queue_bus, given)

    return with_bus(run, arguments)


def tell_faults(faults: Sequence[str], otherwise: str) -> int:
    """Print each fault, or ``otherwise`` where there is none; the exit status."""
    print("\n".join(faults) if faults else otherwise)
    return _EXIT_DIFFERS if faults else 0


def tell(line: str) -> None:
    """Print what is going on, beside the output."""
    print(line, file=sys.stderr, flush=True)
