"""Pulls jobs: one puller per model and priority, open only while the lease is held.

The worker does not poll: a pull request waits on the server until jobs come or it expires, and the puller says when
an expiry has freed credits. For a model that is no longer followed no more jobs are asked for, and those that were
asked for still come: a job that the server is about to deliver when a request is cancelled is lost until ``ack_wait``.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.program import log
from signalbox.program.errors import NotFound, Unavailable
from signalbox.wire import names
from signalbox.wire.names import PRIORITIES, Priority
from workers.queue import prefetch

PARKED_S: Final = 5.0
"""How long a pull request stays on the server."""
PARKED_AFTER_RECONNECT_S: Final = 0.25
"""The same just after a reconnect: a server that is still starting loses pull requests without an answer."""
STARTING_S: Final = 10.0

OnDelivery = Callable[[str, Delivery], None]


class JobIntake:
    """The pullers of one session.

    on_delivery: called with the model and each delivery as it is read; must be quick.
    on_credit: called with a model when jobs of it that were asked for did not come, so that credits are free again.
    """

    def __init__(self, bus: Bus, on_delivery: OnDelivery, on_credit: Callable[[str], None]) -> None:
        self._bus = bus
        self._on_delivery = on_delivery
        self._on_credit = on_credit
        self._loop = asyncio.get_running_loop()
        self._starting_until_s = 0.0
        self._pullers: dict[str, dict[Priority, Puller]] = {}
        self._retired: list[Puller] = []
        """Pullers that ask for no more jobs, and listen while the server owes them some."""

    @property
    def models(self) -> frozenset[str]:
        """Models that are being pulled."""
        return frozenset(self._pullers)

    async def follow(self, models: Iterable[str]) -> None:
        """Ask for jobs of exactly these models from now on. Raises :class:`Unavailable`; then it may be repeated."""
        wanted = set(models)
        for model in self._pullers.keys() - wanted:
            for puller in self._pullers.pop(model).values():
                puller.on_idle = None
                self._retired.append(puller)
        owed = [puller for puller in self._retired if puller.outstanding]
        for puller in self._retired:
            if puller not in owed:
                await puller.close()
        self._retired = owed
        for model in sorted(wanted - self._pullers.keys()):
            try:
                self._pullers[model] = await self._open(model)
            except NotFound:
                log.warning("intake.no_consumer", model=model)

    def ask(self, model: str, wanted: int, waiting: Mapping[Priority, int]) -> None:
        """Ask for as many jobs of a model as are missing from ``wanted``."""
        pullers = self._pullers.get(model)
        if pullers is None:
            return
        outstanding = {priority: puller.outstanding for priority, puller in pullers.items()}
        is_starting = self._loop.time() < self._starting_until_s
        parked_s = PARKED_AFTER_RECONNECT_S if is_starting else PARKED_S
        for priority, number in prefetch.missing_credits(wanted, waiting, outstanding).items():
            pullers[priority].ask(number, expires_s=parked_s)

    def reconnected(self) -> None:
        """Note that the connection is back; the server may still be starting."""
        self._starting_until_s = self._loop.time() + STARTING_S

    async def close(self) -> None:
        """Stop to pull; deliveries that were on their way have been passed on when this returns."""
        pullers = [puller for by_priority in self._pullers.values() for puller in by_priority.values()]
        pullers += self._retired
        self._pullers.clear()
        self._retired = []
        await self._close(pullers)

    async def _open(self, model: str) -> dict[Priority, Puller]:
        opened: dict[Priority, Puller] = {}
        try:
            for priority in PRIORITIES:
                puller = opened[priority] = await self._bus.pull(
                    names.consumer(model, priority), partial(self._on_delivery, model)
                )
                puller.on_idle = partial(self._on_credit, model)
        except BaseException:
            await self._close(opened.values())
            raise
        return opened

    async def _close(self, pullers: Iterable[Puller]) -> None:
        open_ = list(pullers)
        try:
            await asyncio.gather(*(puller.drain() for puller in open_))
        except Unavailable:
            log.debug("intake.closed_without_connection")  # on a connection that is lost
        finally:
            for puller in open_:
                await puller.close()
