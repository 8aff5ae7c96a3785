"""Checks whether a running plugin serves: a container's health check, in a new process every few seconds.

So this imports nothing of the plugin but its settings, and gRPC only to ask.
"""

import enum
import os
import signal
from pathlib import Path
from typing import Final

from gateway_plugin.settings import UNIX
from signalbox.program.heldfile import HeldFile

HEALTH: Final = "/grpc.health.v1.Health/Check"
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"
STUCK_S: Final = 15.0
"""A plugin that takes connections and sends nothing for so long is stuck. gRPC itself gives up after 20 s."""


class Health(enum.Enum):
    """The outcome of a check. SILENT: the connection was taken, and no answer came in time."""

    SERVES = "serves"
    AWAY = "away"
    SILENT = "silent"


async def check_health(listen: str, timeout_s: float) -> bool:
    """Whether the server at ``listen`` says it serves."""
    return await ask(listen, timeout_s) is Health.SERVES


async def ask(listen: str, timeout_s: float) -> Health:
    """What the server at ``listen`` says within ``timeout_s``."""
    import grpc.aio

    address = f"unix:{listen.removeprefix(UNIX)}" if listen.startswith(UNIX) else listen
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary(HEALTH, request_serializer=bytes, response_deserializer=bytes)
        try:
            said = await check(b"", timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return Health.SILENT if is_late else Health.AWAY
    return Health.SERVES if said == SERVING else Health.AWAY


async def end_stuck(listen: str, pid_file: Path, stuck_s: float = STUCK_S) -> bool:
    """Whether the server at ``listen`` serves. One that is silent for ``stuck_s`` is killed, to be started again.

    Tyk has no deadline for a call: while one of two plugins is stopped Tyk answers hardly any caller, until it ends.
    """
    lock = HeldFile(pid_file)
    asked = lock.holder()
    found = await ask(listen, stuck_s)
    if found is Health.SILENT:
        # The file is locked while the process lives, so the id is not another's by now.
        if not lock.take() and (holder := lock.holder()) == asked and holder.isdecimal():
            from signalbox.program import log

            log.error("gateway.stuck_killed", pid=int(holder), silent_s=stuck_s)
            os.kill(int(holder), signal.SIGKILL)
        lock.close()
    return found is Health.SERVES
