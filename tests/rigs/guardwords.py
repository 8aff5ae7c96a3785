"""Words of a guard, waited for by a test."""

import asyncio
import os

from workers.guard.link import GuardReport

LIMIT_S = 60.0


class Words:
    """What a guard has said. :meth:`put` is its ``on_report``."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[GuardReport] = asyncio.Queue()

    def put(self, word: GuardReport) -> None:
        """Take one."""
        self._queue.put_nowait(word)

    async def receive(self, verb: str) -> GuardReport:
        """The next ``verb``; what is said before it is forgotten."""
        async with asyncio.timeout(LIMIT_S):
            while (word := await self._queue.get()).verb != verb:
                pass
        return word

    @staticmethod
    async def ended(pidfd: int) -> None:
        """Until the process is gone; closes the descriptor."""
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(pidfd, gone.set)
        try:
            async with asyncio.timeout(LIMIT_S):
                await gone.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
