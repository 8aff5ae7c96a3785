"""Goes on in spite of errors: repeats what NATS must answer, and keeps the tasks of the feed running."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from signalbox.program import log
from signalbox.program.errors import SignalboxError

RETRY_S: Final = 1.0


async def until_done(act: Callable[[], Awaitable[object]]) -> None:
    """Repeats what NATS must answer until it does."""
    while True:
        try:
            await act()
            return
        except SignalboxError as error:
            log.warning("live.read_failed", reason=error.public_message)
            await asyncio.sleep(RETRY_S)


async def for_ever(name: str, keep: Callable[[], Awaitable[None]]) -> None:
    """Runs one task of the board; no error that a message or answer causes ends it."""
    while True:
        try:
            await keep()
        except Exception:  # noqa: BLE001  logged, and tried again
            log.exception("live.task_failed", task=name)
            await asyncio.sleep(RETRY_S)
