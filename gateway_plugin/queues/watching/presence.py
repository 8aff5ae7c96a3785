"""Which watches are open, here and in other plugins, as each tells of its own."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.wire import queuenames
from signalbox.wire.messages import decode, encode
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import Watching, WatchState

TELL_S: Final = 3.0
"""A plugin that holds watches tells of them so often, and whenever one comes or goes."""
FORGET_S: Final = 10.0
"""Nothing was heard of a plugin for so long: its watches are gone."""
_MOST_BYTES: Final = 1024 * 1024
"""Above that, states go without their tags: one message tells of all watches of a plugin."""
Identity = tuple[str, Side, str, str]


def identity_of(state: WatchState) -> Identity:
    """What no two open watches share: queue, side, group and uid."""
    return state.queue, state.side, state.group, state.uid


def in_order(states: Iterable[WatchState]) -> list[WatchState]:
    """By group and uid, as people read them."""
    return sorted(states, key=lambda state: (state.group, state.uid, state.since))


class _Heard(NamedTuple):
    at: float
    watches: Sequence[WatchState]


class Presence:
    """The watches of all plugins. bus: to the account of the queue service. clock: UTC seconds.

    on_heard: called with the instance and the watches of another plugin whenever it tells.
    """

    def __init__(self, bus: Bus, *, clock: Callable[[], float] = time.time) -> None:
        self.on_heard: Callable[[str, Sequence[WatchState]], None] | None = None
        self.instance = bus.instance
        self._bus = bus
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._own: Sequence[WatchState] = ()
        self._others: dict[str, _Heard] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Listen from now on. Raises :class:`Unavailable`."""
        self._subscription = await self._bus.subscribe(queuenames.watching(), self._heard)

    async def close(self) -> None:
        """Listen no more. Idempotent."""
        if self._subscription is not None:
            await self._subscription.close()

    async def tell(self, states: Sequence[WatchState]) -> None:
        """Tell the others of all watches that are open here."""
        self._own = states
        data = encode(Watching(watches=tuple(states)))
        if len(data) > _MOST_BYTES:
            data = encode(Watching(watches=tuple(replace(state, tags={}) for state in states)))
        await self._bus.publish(queuenames.watching(self.instance), data)

    def of(self, queue: str, side: Side) -> list[WatchState]:
        """All open watches of a side as they were told of last, in the order of group and uid."""
        own = [state for state in self._own if (state.queue, state.side) == (queue, side)]
        return in_order([*own, *self.elsewhere(queue, side)])

    def elsewhere(self, queue: str, side: Side) -> list[WatchState]:
        """Those of other plugins."""
        found = (state for heard in self._live().values() for state in heard.watches)
        return [state for state in found if (state.queue, state.side) == (queue, side)]

    def holders(self, identity: Identity) -> list[str]:
        """Other plugins that hold a watch of this consumer, the one that opened it last first."""
        found = [
            (state.since, instance)
            for instance, heard in self._live().items()
            for state in heard.watches
            if identity_of(state) == identity
        ]
        return [instance for _, instance in sorted(found, reverse=True)]

    def since(self, identity: Identity) -> float:
        """When a watch of this consumer that is opened now begins: later than those that are known."""
        known = [state.since for state in self.of(identity[0], identity[1]) if identity_of(state) == identity]
        return max([self._clock(), *(since + 0.001 for since in known)])

    def _live(self) -> dict[str, _Heard]:
        """What the others have told lately."""
        old = self._loop.time() - FORGET_S
        for instance in [instance for instance, heard in self._others.items() if heard.at < old]:
            del self._others[instance]
        return self._others

    def _heard(self, message: Message) -> None:
        instance = message.subject.rpartition(".")[2]
        if instance == self.instance:
            return
        try:
            watches = decode(Watching, message.data).watches
        except msgspec.MsgspecError:  # a newer program's
            return
        if watches:
            self._others[instance] = _Heard(self._loop.time(), watches)
        else:
            self._others.pop(instance, None)
        if self.on_heard is not None:
            self.on_heard(instance, watches)
