"""Decides whether a worker that does not hold the GPU waits for it.

It listens to accepted jobs of its models only while no job is known to wait. At the first one it stops listening,
gives the holder a moment, and then asks the queues whether a job still waits. If so it takes a ticket; if not it
listens again. So a busy holder costs a standby two requests a few times a second at most, and an idle fleet costs
only an occasional check.
"""

import asyncio
import random
from collections.abc import Callable, Iterable

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError
from signalbox.wire import names
from signalbox.wire.names import PRIORITIES


class Demand:
    """Watches the queues of this worker's models for as long as it is not the holder.

    want: called with True when a ticket should be held and with False when not.
    """

    def __init__(
        self,
        bus: Bus,
        models: Callable[[], Iterable[str]],
        want: Callable[[bool], None],
        *,
        patience_s: float,
        recheck_s: float,
    ) -> None:
        self._bus = bus
        self._models = models
        self._want = want
        self._patience_s = patience_s
        self._recheck_s = recheck_s
        self._armed = asyncio.Event()
        self._heard: list[Subscription] = []

    async def watch(self) -> None:
        """Until cancelled: take and give up tickets as jobs wait or not."""
        try:
            while True:
                try:
                    await self._turn()
                except SignalboxError as error:
                    log.warning("demand.check_failed", why=str(error))
                    await asyncio.sleep(self._patience_s)
        finally:
            self._want(False)
            await self._unlisten()

    async def _turn(self) -> None:
        self._armed.clear()
        await self._listen()
        if not await self.backlog():  # after the subscription, so that no job is missed
            await self._wait_for_job()
        await self._unlisten()
        await asyncio.sleep(self._patience_s)
        while await self.backlog():
            self._want(True)
            await asyncio.sleep(self._pause_s())
        self._want(False)

    async def _wait_for_job(self) -> None:
        try:
            async with asyncio.timeout(self._pause_s()):
                await self._armed.wait()
        except TimeoutError:
            return

    async def backlog(self) -> bool:
        """Whether a job of this worker's models waits that is not in flight."""
        for model in self._models():
            for priority in PRIORITIES:
                try:
                    info = await self._bus.consumer_info(names.consumer(model, priority))
                except NotFound:
                    continue
                if info.num_pending:
                    return True
        return False

    async def _listen(self) -> None:
        for model in self._models():
            self._heard.append(await self._bus.subscribe(names.event_of_jobs(model), self._on_job))

    async def _unlisten(self) -> None:
        while self._heard:
            await self._heard.pop().close()

    def _on_job(self, _: Message) -> None:
        self._armed.set()

    def _pause_s(self) -> float:
        return self._recheck_s * (0.8 + 0.4 * random.random())  # noqa: S311  no secret: spreads load
