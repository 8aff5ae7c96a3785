"""Decides whether a worker that does not hold the GPU waits for it.

It listens to accepted jobs of its models. When it learns of one it listens no more to that model, gives the holder a
moment, and then asks whether a job of it still waits. If so it takes a ticket, for as long as any does; of a model of
which none waits it listens again. So a busy holder costs a standby some requests every few seconds, and an idle fleet
none.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing

from signalbox.bus.client import Bus
from signalbox.jobs import delivery
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from workers.host.hints import Hints


class Demand:
    """Watches the queues of this worker's models for as long as it is not the holder.

    models: those that may be served now. generation: of the fleet's consumers. has_files: whether a model can be served
    with the files that are here, of which a job waits; where not, it has them fetched. No ticket is taken meanwhile.
    """

    def __init__(
        self,
        bus: Bus,
        models: Callable[[], Collection[str]],
        generation: Callable[[], int],
        *,
        patience_s: float,
        recheck_s: float,
        has_files: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._bus = bus
        self._models = models
        self._generation = generation
        self._patience_s = patience_s
        self._recheck_s = recheck_s
        self._has_files = has_files
        self._hints = Hints(bus, lambda model, _, __: self._receive(model), self._receive)
        self._known: frozenset[str] = frozenset()
        self._received: set[str] = set()
        """Models of which a job may wait."""
        self._lacking: set[str] = set()
        """Models of which a job waits, and the files are not here."""
        self._is_doubted = False
        self._changed = asyncio.Event()

    async def watch(self) -> AsyncGenerator[bool]:
        """Yield whether a ticket should be held, as jobs wait or not, for as long as it is asked."""
        self._bus.on_reconnect(self._doubt)
        try:
            while True:
                try:
                    async with aclosing(self._turn()) as turn:
                        async for is_wanted in turn:
                            yield is_wanted
                except SignalboxError as error:
                    log.warning("demand.check_failed", why=str(error))
                    await asyncio.sleep(self._patience_s)
        finally:
            self._bus.forget_reconnect(self._doubt)
            self._hints.close()

    def models_changed(self) -> None:
        """Other models may be served now, or files have come."""
        self._changed.set()

    async def _turn(self) -> AsyncGenerator[bool]:
        self._changed.clear()
        await self._follow()
        came = {model for model in self._lacking if self._has_files(model)}
        self._lacking -= came
        self._received |= came
        if not self._received:
            yield False
            await self._changed.wait()
            return
        await asyncio.sleep(self._patience_s)
        while await self.backlog():
            yield True
            await asyncio.sleep(self._recheck_s * (0.8 + 0.4 * random.random()))  # noqa: S311  no secret: spreads load
            await self._follow()
        yield False

    async def _follow(self) -> None:
        """Listen to the models that may be served now, and see which of the new ones have jobs already."""
        models = frozenset(self._models())
        if self._is_doubted:
            self._is_doubted, self._known = False, frozenset()
        before, self._known = self._known, models
        new = models - before
        self._received &= models
        self._lacking &= models
        self._hints.ignore(before - models)
        try:
            await self._hints.listen(new - self._received)  # before the question, so that no job is missed
            self._received |= await delivery.queued_models(self._bus, new)
        except BaseException:
            self._known = before & models
            raise

    async def backlog(self) -> bool:
        """Whether a job waits that is not in flight, of a model that had one and whose files are here."""
        for model in sorted(self._received):
            self._hints.ignore([model])
            if await self._has_pending(model):
                if self._has_files(model):
                    return True
                self._received.discard(model)
                self._lacking.add(model)
                continue
            await self._hints.listen([model])  # and look once more: one may have come before
            self._received.discard(model)
            if await self._has_pending(model):
                self._received.add(model)
                return True
        return False

    async def _has_pending(self, model: str) -> bool:
        infos = await delivery.find_all(self._bus, model, self._generation())
        return any(info.num_pending for info in infos.values())

    def _receive(self, model: str) -> None:
        if model in self._known:
            self._received.add(model)
            self._changed.set()

    def _doubt(self) -> None:
        """Hints may have been missed."""
        self._is_doubted = True
        self._changed.set()
