"""Watches of queues: opened here, told of to other plugins, and what consumers say of the items they got.

A commit is taken by every plugin; an item is given back by the plugin that holds its watch, which the others ask.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from gateway_plugin.queues.items import Consumer
from gateway_plugin.queues.made import Made
from gateway_plugin.queues.watching import commits
from gateway_plugin.queues.watching.feeders import Feeders, Tables
from gateway_plugin.queues.watching.gauges import WATCHES
from gateway_plugin.queues.watching.groups import Place, is_watched
from gateway_plugin.queues.watching.openwatch import OpenWatch, Watch, WatchMoved
from gateway_plugin.queues.watching.presence import TELL_S, Identity, Presence, in_order
from signalbox.bus import queues
from signalbox.bus.client import Bus, Message, Subscription
from signalbox.program import log
from signalbox.program.errors import Conflict, InvalidRequest, LimitExceeded, SignalboxError
from signalbox.program.tasks import Background, TaskGroup
from signalbox.wire import queuenames
from signalbox.wire.messages import decode, encode
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import ACK_WAIT_S, DEFAULT_GROUP, Queue, WatchAsk, WatchDone, WatchState

MOST_WATCHES: Final = 4000
"""Of one plugin."""
LEAVES: Final = "Shutdown"
"""Code of a consumer that will take no more."""
_EXTEND_S: Final = ACK_WAIT_S / 3
_TELL_AFTER_S: Final = 0.05
"""Watches that come and go within this time are told of together."""


class Watches:
    """All watches of this plugin. bus: to the account of the queue service. ``await start()`` once."""

    def __init__(self, bus: Bus, tables: Tables, presence: Presence) -> None:
        self._bus = bus
        self._tables = tables
        self._presence = presence
        self._made = Made(bus)
        self._loop = asyncio.get_running_loop()
        self._feeders = Feeders(bus, tables)
        self._watches: dict[Identity, OpenWatch] = {}
        self._work = Background()
        self._asks: Subscription | None = None
        self._told: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Listen to the other plugins, and keep what is given out. Raises :class:`Unavailable`."""
        self._presence.on_heard = self._heard
        self._tables.on_change(self._feeders.changed)
        self._asks = await self._bus.subscribe(queuenames.ask_watch(self._bus.instance), self._asked)
        await self._presence.start()
        self._bus.on_reconnect(self._reconnected)
        for name, every_s, act in (("extend", _EXTEND_S, self._feeders.extend), ("tend", TELL_S, self._tend)):
            self._work.start(self._every(every_s, act), name=f"queue watches: {name}")

    async def close(self) -> None:
        """End all watches, give back what they have not committed, and tell the others. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._bus.forget_reconnect(self._reconnected)
        await self._work.cancel()
        async with TaskGroup() as group:  # where NATS does not answer each takes seconds
            for watch in list(self._watches.values()):
                group.create_task(watch.close(code=LEAVES, reason="the program stops"))
        await self._feeders.close()
        if self._told is not None:
            self._told.cancel()
        with contextlib.suppress(SignalboxError):
            await self._presence.tell(())
            await self._bus.flush()
        await self._presence.close()
        if self._asks is not None:
            await self._asks.close()

    # ------------------------------------------------------------------------------ the verbs

    async def watch(self, queue: Queue, side: Side, consumer: Consumer, watch: Watch) -> OpenWatch:
        """Open a watch; an earlier one of the same consumer ends, wherever it is.

        Raises :class:`InvalidRequest`, :class:`LimitExceeded` where this program has too many, :class:`NotFound` where
        the queue is not there yet or not any more, and :class:`Unavailable`, also while its streams are an earlier
        queue's of that name.
        """
        watch.require_sound()
        if len(self._watches) >= MOST_WATCHES or self._is_closed:
            raise LimitExceeded("This front has as many open watches as it takes.", retry_after_s=1.0)
        await self._made.require(queue, side)
        place = Place(queue.name, side, consumer.group)
        identity = (queue.name, side, consumer.group, consumer.uid)
        feeder = await self._feeders.open(place, queue, watch.index)
        former = self._watches.get(identity)
        if former is not None:
            self._move(former)
        since = self._presence.since(identity)
        if former is not None:
            since = max(since, former.since + 0.001)
        most_unsent = feeder.most_unsent(len(self._watches) + 1)
        opened = OpenWatch(place, consumer, watch, since=since, most_unsent=most_unsent, feeder=feeder)
        opened.on_close = self._closed
        self._watches[identity] = opened
        feeder.add(opened)
        self._tell_soon()
        return opened

    async def commit(self, queue: Queue, side: Side, group: str, indexes: Sequence[int]) -> None:
        """Commit items for a group; what is committed already, or deleted, is fine. Returns when the server has them.

        Raises :class:`Conflict` where one was not given to this group, and :class:`Unavailable`; some may be committed
        then, and the same call may be made again.
        """
        place = Place(queue.name, side, group)
        await commits.commit(self._bus, place, indexes, self._feeders.find(place))

    async def negative(
        self, queue: Queue, side: Side, consumer: Consumer, indexes: Sequence[int], code: str = "", reason: str = ""
    ) -> None:
        """Give items back at once, their delivery count raised. Code ``Shutdown``: the consumer also takes no more.

        Raises :class:`InvalidRequest` for a code that is none, :class:`Conflict` where no watch of this consumer is
        open or it does not hold one of them, and :class:`Unavailable`.
        """
        commits.require_code(code)
        ask = WatchAsk(
            queue=queue.name,
            side=side,
            group=consumer.group,
            uid=consumer.uid,
            indexes=tuple(indexes),
            code=code,
            reason=reason[: commits.REASON_BYTES],
        )
        done = await self._give_back(ask)
        for instance in [] if done.is_known else self._presence.holders((queue.name, side, *consumer)):
            done = await commits.ask(self._bus, instance, ask)
            if done.is_known:
                break
        if not done.is_known:
            raise Conflict("No watch of this consumer is open; what it had has been given back.")
        missing = sorted(set(indexes) - set(done.indexes))
        if missing:
            raise Conflict("This consumer does not hold all of these items.", indexes=missing[: commits.MOST_TOLD])

    async def forget(self, queue: Queue, side: Side, group: str) -> None:
        """Remove a group that nobody watches, and what is kept for it alone. Idempotent.

        Raises :class:`InvalidRequest` for the default one, :class:`Conflict` where it is watched, by any program, and
        :class:`Unavailable`; a part of it may be gone then, and the same call may be made again.
        """
        if group == DEFAULT_GROUP:
            raise InvalidRequest(f'The group "{group}" is each queue\'s own and stays.', group=group)
        place = Place(queue.name, side, group)
        is_here = place in self._feeders
        await self._presence.tell(self.states())  # without those that have just ended
        is_known = is_here or any(state.group == group for state in self._presence.of(queue.name, side))
        if is_known or await is_watched(self._bus, place):
            raise Conflict(f'The group "{group}" is watched: end its watches first, then have it forgotten.')
        await queues.remove_group(self._bus, queue.name, side, group)

    def of(self, queue: str, side: Side) -> list[WatchState]:
        """All open watches of a side, by group and uid: those of this program as they stand, others' as they told."""
        here = [watch.state for at, watch in self._watches.items() if at[:2] == (queue, side)]
        return in_order([*here, *self._presence.elsewhere(queue, side)])

    def states(self) -> list[WatchState]:
        """How every watch of this program stands."""
        return [watch.state for watch in self._watches.values()]

    # ------------------------------------------------------------------------------ inside

    async def _closed(self, watch: OpenWatch) -> None:
        """A watch is closed: its items go back, and the last one of its group here ends the feeder."""
        identity = (*watch.place, watch.consumer.uid)
        if self._watches.get(identity) is watch:
            del self._watches[identity]
        await watch.feeder.remove(watch)
        await self._feeders.close_idle(watch.feeder)
        self._tell_soon()
        with contextlib.suppress(SignalboxError):  # without a connection the items come back by themselves
            await self._bus.flush()

    def _move(self, watch: OpenWatch) -> None:
        """Its consumer watches elsewhere from now on. What it has not committed goes back at once."""
        watch.end(WatchMoved())
        self._work.start(watch.feeder.remove(watch), name="items of a watch that moved")
        identity = (*watch.place, watch.consumer.uid)
        if self._watches.get(identity) is watch:
            del self._watches[identity]

    def _heard(self, instance: str, watches: Sequence[WatchState]) -> None:
        """Another plugin tells of its watches: the later one of a consumer goes on."""
        for state in watches:
            own = self._watches.get((state.queue, state.side, state.group, state.uid))
            if own is not None and (state.since, instance) > (own.since, self._bus.instance):
                self._move(own)
                self._tell_soon()

    async def _asked(self, message: Message) -> None:
        """Another plugin's caller gives items back that are held here."""
        with contextlib.suppress(msgspec.MsgspecError):
            done = await self._give_back(decode(WatchAsk, message.data))
            self._bus.send(message.reply, b"", b"", encode(done))

    async def _give_back(self, ask: WatchAsk) -> WatchDone:
        watch = self._watches.get((ask.queue, ask.side, ask.group, ask.uid))
        if watch is None:
            return WatchDone()
        found = [held for index in ask.indexes if (held := watch.held.get(index)) is not None]
        if ask.code == LEAVES:
            watch.leave()
            watch.feeder.noted(watch)
            self._tell_soon()
        for held in found:
            told = {"queue": ask.queue, "side": ask.side, "group": ask.group, "index": held.seq}
            log.info("queue.item_returned", **told, code=ask.code, reason=ask.reason)
        await watch.feeder.give_back(found, "negative")
        return WatchDone(is_known=True, indexes=tuple(held.seq for held in found))

    # ------------------------------------------------------------------------------ time

    def _tell_soon(self) -> None:
        WATCHES.set(len(self._watches))
        if self._told is None and not self._is_closed:
            self._told = self._loop.call_later(_TELL_AFTER_S, self._tell)

    def _tell(self) -> None:
        self._told = None
        self._work.start(self._presence.tell(self.states()), name="queue watches: tell")

    async def _every(self, every_s: float, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await act()
            except SignalboxError as error:
                log.warning("queue.watches_not_tended", reason=error.public_message)

    def _reconnected(self) -> None:
        self._made.forget()
        self._work.start(self._feeders.extend(), name="queue watches: extend")
        for feeder in self._feeders:
            self._work.start(feeder.fetch_forgotten(), name="queue watches: forgotten")

    async def _tend(self) -> None:
        if self._watches:
            self._tell_soon()
        await self._feeders.tend()
