"""Looks receivers' names up, so that a name server that hangs keeps no other receiver's name waiting.

The system's resolver blocks a thread, for half a minute at worst, whoever has ceased to wait. The default pool has a
few of them; here is one of many, and of one name no more than one lookup is in flight.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from signalbox.program.tasks import SingleFlight

_THREADS: Final = 128
System = Callable[[str, int], Sequence[str]]
"""Blocks until it has all addresses of a name. Raises ``OSError``."""


def system_addresses(host: str, port: int) -> Sequence[str]:
    """All addresses that the system's resolver knows of a name. Raises ``OSError``."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Resolver:
    """A :data:`signalbox.program.egress.Lookup`. system: what it asks."""

    def __init__(self, system: System = system_addresses) -> None:
        self._system = system
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lookup")
        self._lookups: SingleFlight[tuple[str, int], Sequence[str]] = SingleFlight()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """All addresses of a name. Raises ``OSError``. The caller bounds the time."""
        return await self._lookups.ask((host, port), partial(self._look_up, host, port))

    def close(self) -> None:
        """Begin no more lookups. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._system, host, port)
