"""The tasks of one session: none outlives it, and an error in one ends no other."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from signalbox.program import log
from signalbox.program.errors import SignalboxError


class Tasks:
    """Work in tasks that are waited for."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task of its own; its errors are logged."""
        task = asyncio.create_task(_guarded(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def ended(self) -> None:
        """Return when none runs any more."""
        while self._running:
            await asyncio.wait(list(self._running))

    async def end(self) -> None:
        """Cancel all, and wait for them."""
        for task in list(self._running):
            task.cancel()
        await self.ended()


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except SignalboxError as error:
        log.warning("session.work_failed", why=str(error), code=error.code)
    except Exception:  # noqa: BLE001  the edge of a task
        log.exception("session.work_failed")
