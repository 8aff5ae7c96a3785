"""Which watches all programs hold, as each tells of its own."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.wire import queuenames
from signalbox.wire.messages import decode
from signalbox.wire.queues import Watching, WatchState

FORGET_S: Final = 10.0
"""Nothing was heard of a program for so long: it holds no watch any more. Each tells every few seconds."""


class HeardWatches:
    """The watches of all programs. bus: to the account of queues. stirred: set whenever one tells of its own."""

    def __init__(self, bus: Bus, stirred: asyncio.Event) -> None:
        self._bus = bus
        self._stirred = stirred
        self._loop = asyncio.get_running_loop()
        self._heard: dict[str, tuple[float, Sequence[WatchState]]] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Listen from now on. Raises :class:`Unavailable`."""
        self._subscription = await self._bus.subscribe(queuenames.watching(), self._take)

    async def close(self) -> None:
        """Listen no more. Idempotent."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()

    def __bool__(self) -> bool:
        """Whether there is a watch anywhere."""
        return bool(self._heard)

    def by_queue(self) -> dict[str, list[WatchState]]:
        """All watches that are open, of each queue in the order of side, group and uid."""
        old = self._loop.time() - FORGET_S
        self._heard = {instance: heard for instance, heard in self._heard.items() if heard[0] >= old}
        found: dict[str, list[WatchState]] = {}
        for _, watches in self._heard.values():
            for state in watches:
                found.setdefault(state.queue, []).append(state)
        for states in found.values():
            states.sort(key=lambda state: (state.side != "source", state.group, state.uid))
        return found

    def _take(self, message: Message) -> None:
        instance = message.subject.rpartition(".")[2]
        try:
            watches = decode(Watching, message.data).watches
        except msgspec.MsgspecError:  # a newer program's
            return
        if watches:
            self._heard[instance] = self._loop.time(), watches
        elif self._heard.pop(instance, None) is None:
            return
        self._stirred.set()
