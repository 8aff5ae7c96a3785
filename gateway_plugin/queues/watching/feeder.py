"""One group's items in this plugin: from the first watch to the last, what its consumers and the server say of them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway_plugin.queues.watching.giving import Giving
from gateway_plugin.queues.watching.groups import Place, standing
from gateway_plugin.queues.watching.openwatch import ALL_UNSENT_BYTES, UNSENT_BYTES, Held, OpenWatch
from signalbox.bus import queues
from signalbox.bus.client import Bus, Message, Subscription
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import queuenames
from signalbox.wire.queuenames import RANKS
from signalbox.wire.queues import ACK_WAIT_S, Queue, QueueMark

_COMMIT_AGAIN_S: Final = 1.0


class Feeder:
    """Made by :class:`Feeders` for the first watch of a group here, closed with the last. queue: its newest document,
    mark: whether its side has ended. created_at: of the queue; one of the same name made later is another. sharing:
    the watches. is_closed: it takes no watch any more."""

    def __init__(
        self, bus: Bus, place: Place, queue: Callable[[], Queue], mark: Callable[[], QueueMark | None]
    ) -> None:
        self.place = place
        self.created_at = queue().created_at
        self.is_closed = False
        self._bus = bus
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._work = Background()
        self._giving = Giving(bus, place, queue, mark, self._work)
        self.sharing = self._giving.sharing
        self._pulling = self._giving.pulling
        self._subscriptions: list[Subscription] = []
        self._missed_at: float | None = None

    # ------------------------------------------------------------------------------ beginning and end

    async def start(self, index: int) -> None:
        """Make the group where there is none, and listen. Raises :class:`Unavailable`, :class:`NotFound`."""
        place = self.place
        await queues.make_group(self._bus, self._queue(), place.side, place.group, index)
        for subject, heard in (
            (queuenames.event_of_queue(place.queue, place.side, "hi"), self._high_came),
            (queuenames.returned(place.queue, place.side, place.group), self._returned),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, heard))
        for rank in RANKS:
            subject = queuenames.queue_ack(place.queue, place.side, place.consumer(rank))
            self._subscriptions.append(await self._bus.subscribe(subject, self._acknowledged))
        self._bus.on_reconnect(self._pulling.high_came)

    async def close(self) -> None:
        """Give back all that is here. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self._bus.forget_reconnect(self._pulling.high_came)
        await self._giving.close()
        for subscription in self._subscriptions:
            await subscription.close()
        await self._work.finish()

    # ------------------------------------------------------------------------------ watches

    def most_unsent(self, watches: int) -> int:
        """Items of this queue that may wait for one connection, of so many that are open in this plugin."""
        most_bytes = min(UNSENT_BYTES, ALL_UNSENT_BYTES // watches)
        return max(1, most_bytes // self._queue().room(self.place.side).item_bytes)

    def add(self, watch: OpenWatch) -> None:
        """One more watch takes part from now on."""
        self._giving.add(watch)

    async def remove(self, watch: OpenWatch) -> None:
        """Give back what a watch has not committed, first the lowest index. Idempotent."""
        self.sharing.remove(watch)
        await self.give_back(sorted(watch.held.values(), key=lambda one: one.seq), "closed")
        self._pulling.advance()

    def noted(self, watch: OpenWatch) -> None:
        """What a watch has free may have changed."""
        self._giving.noted(watch)

    def changed(self) -> None:
        """The queue has another document, or its side has ended, or is open again."""
        self._giving.changed()

    # ------------------------------------------------------------------------------ what consumers say of items

    async def commit(self, index: int) -> bool:
        """Commit an item that is held here; False where it is not. Raises :class:`Unavailable`: perhaps it is."""
        held = self._giving.held.get(index)
        if held is None:
            return False
        held.is_committing = True
        try:
            await self._acknowledge(held)
        except SignalboxError:
            held.is_committing = False
            if held.watch.ended.is_set():
                self._giving.give_back(held, "closed")
            raise
        self._giving.committed(held)
        return True

    def acknowledge(self, held: Held) -> None:
        """Commit an item that was sent to a consumer that commits none itself, in the background."""
        if self._holds(held):
            held.is_committing = True
            self._work.start(self._commit_sent(held), name="queue commit")

    async def give_back(self, held: Sequence[Held], why: str) -> None:
        """Have items given out again, their delivery count raised."""
        await self._pulling.settle()
        for one in held:
            if self._holds(one) and not one.is_committing:
                self._giving.give_back(one, why)

    def _holds(self, held: Held) -> bool:
        return self._giving.held.get(held.seq) is held

    async def _acknowledge(self, held: Held) -> None:
        """Returns when the server has it. One that was killed may have forgotten that it gave the item out: it answers
        nothing then until it has given it again, for which there may be no slot."""
        try:
            await self._bus.request(held.reply, b"+ACK")
        except Unavailable:
            if not self._bus.is_connected or not await self._giving.fetch_forgotten([held]):
                raise
            await self._bus.request(held.reply, b"+ACK")

    async def _commit_sent(self, held: Held) -> None:
        """Nobody commits it again: until the server has it, or its watch has ended; once at least, also then."""
        while self._holds(held):
            try:
                await self.commit(held.seq)
            except Unavailable:
                if self.is_closed:
                    return
                await asyncio.sleep(_COMMIT_AGAIN_S)

    # ------------------------------------------------------------------------------ what the server is told, and tells

    def extend(self) -> None:
        """Tell the server that what is here is being worked on."""
        for reply in self._giving.replies():
            self._bus.send(reply, b"", b"", b"+WPI")

    def forget(self, before: float) -> None:
        """Let go of what was given out before that loop time: the server has given it to another plugin by now."""
        for held in [one for one in self._giving.held.values() if one.since < before]:
            self._giving.let_go(held)

    async def fetch_forgotten(self) -> None:
        """After a reconnect: have the server give again what it has forgotten to have given to watches here."""
        self._missed_at = self._loop.time()
        await self._giving.fetch_forgotten(list(self._giving.held.values()))

    async def tend(self) -> None:
        """What no event tells of, or one that was lost: high items that came, or are given back elsewhere, a group that
        is gone, commits elsewhere that were not heard. Every few seconds. Raises :class:`Unavailable`."""
        place, out = self.place, self._giving.held
        if self._pulling.refusal:
            await queues.make_group(self._bus, self._queue(), place.side, place.group)
        if not out and not self._pulling.is_parked:
            return
        try:
            found = await standing(self._bus, place)
        except Unavailable:  # our node may be cut off from those through which others commit, and no connection tells
            self._missed_at = self._loop.time()
            raise
        old = self._loop.time() - ACK_WAIT_S
        # An older one may be committed elsewhere, unheard here: it must not stand for one that waits to be given again.
        here = sum(held.rank == "hi" and held.since >= old for held in out.values())
        if self._pulling.is_parked and (found.left["hi"] or found.waiting["hi"] > here):
            self._pulling.high_came()
        for held in [one for one in out.values() if one.since < old and one.seq <= found.floors[one.rank]]:
            self._giving.committed(held)
        self._make_room(old)
        self._giving.look_for_end()

    def _make_room(self, before: float) -> None:
        """Where NATS was away from this plugin it may have missed commits at others. A whole window of such items would
        keep the watch from the item that the group's floor waits for, and each waits for the other."""
        if self._missed_at is None or self._missed_at > before:
            return
        for watch in self.sharing:
            if not watch.slots:
                watch.doubt(self._missed_at)
                self.noted(watch)

    def _high_came(self, _: Message) -> None:
        self._pulling.high_came()

    def _returned(self, message: Message) -> None:
        """Another plugin has given a high item back, or asks whether the group is watched."""
        if message.reply:
            self._bus.send(message.reply, b"", b"", b"")
        else:
            self._pulling.high_came()

    def _acknowledged(self, message: Message) -> None:
        """Another plugin acknowledges an item by its index."""
        held = self._giving.held.get(int(message.subject.split(".")[5]))
        if held is not None and message.data.startswith(b"+ACK"):
            self._giving.committed(held)
