"""Gives what comes for a group to its watches here, and knows which of them has what until it is released."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gateway_plugin.queues import rear
from gateway_plugin.queues.items import Item, item_of
from gateway_plugin.queues.watching.gauges import COMMITTED, DEAD, GIVEN, RETURNED
from gateway_plugin.queues.watching.groups import Place, standing
from gateway_plugin.queues.watching.openwatch import Held, OpenWatch
from gateway_plugin.queues.watching.pulling import Pulling
from gateway_plugin.queues.watching.sharing import Sharing
from signalbox.bus.acknowledgement import ack, nak
from signalbox.bus.client import Bus, Delivery
from signalbox.program import log
from signalbox.program.errors import QueueFull, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import queuenames
from signalbox.wire.queuenames import Rank
from signalbox.wire.queues import Queue, QueueMark

SPARE_S: Final = 1.0
"""An item for which there is no slot any more is given back after so long."""
_FETCH_S: Final = 5.0
"""What the server has forgotten to have given out comes again within this time, or has gone to another plugin."""
_BURY_AGAIN_S: Final = 10.0
"""A dead item that the rear queue does not take is looked at again after so long."""


class Giving:
    """Of one group. queue: its newest document, mark: whether its side has ended. work: what runs beside its callers.
    held: by index, what is given out here. sharing: the watches, pulling: what is asked for."""

    def __init__(
        self,
        bus: Bus,
        place: Place,
        queue: Callable[[], Queue],
        mark: Callable[[], QueueMark | None],
        work: Background,
    ) -> None:
        self.held: dict[int, Held] = {}
        self.sharing = Sharing()
        self.pulling = Pulling(bus, place, self._delivered, self._free)
        self._bus = bus
        self._place = place
        self._queue = queue
        self._mark = mark
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._spares: deque[tuple[float, Delivery]] = deque()
        self._aside = 0
        self._forgotten: dict[int, asyncio.Event] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_checking = False
        self._is_check_due = False

    async def close(self) -> None:
        """Give back all that is here."""
        self._is_closed = True
        await self.pulling.close()
        await self._work.finish()
        while self._spares:
            self._nak_spare(self._spares.popleft()[1])
        for held in list(self.held.values()):
            self.give_back(held, "closed")
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def add(self, watch: OpenWatch) -> None:
        """One more watch takes part from now on."""
        self.sharing.add(watch)
        self._share_spares()
        self.pulling.advance()
        self.look_for_end()

    def noted(self, watch: OpenWatch) -> None:
        """What a watch has free may have changed."""
        self.sharing.note(watch)
        self._share_spares()
        self.pulling.advance()

    def changed(self) -> None:
        """The queue has another document, or its side has ended, or is open again."""
        self._watch_idle()
        self.look_for_end()

    def replies(self) -> Iterator[str]:
        """Where the server hears of each item that is here."""
        for held in self.held.values():
            yield held.reply
        for _, delivery in self._spares:
            yield delivery.reply.decode()

    # ------------------------------------------------------------------------------ what becomes of an item

    def committed(self, held: Held) -> None:
        """The server knows that an item is committed."""
        if self.held.get(held.seq) is held:
            COMMITTED.inc()
            self._release(held)

    def give_back(self, held: Held, why: str) -> None:
        """Have an item given out again, its delivery count raised."""
        self._nak(held.reply, held.rank)
        RETURNED.labels(why).inc()
        self._release(held)

    def let_go(self, held: Held) -> None:
        """The server has given an item to another plugin by now."""
        RETURNED.labels("late").inc()
        self._release(held)

    async def fetch_forgotten(self, held: Sequence[Held]) -> bool:
        """Have the server give again what it has forgotten to have given out. Whether each of these that was forgotten
        has come again, in time."""
        given = (await standing(self._bus, self._place)).given if held else {}
        behind = [one.seq for one in held if one.seq > given[one.rank]]
        forgotten = {seq: self._forgotten.setdefault(seq, asyncio.Event()) for seq in behind}
        self.pulling.high_came()
        try:
            async with asyncio.timeout(_FETCH_S):
                for event in forgotten.values():
                    await event.wait()
        except TimeoutError:  # another plugin has got it
            return False
        finally:
            for seq in forgotten:
                self._forgotten.pop(seq, None)
        return True

    def _release(self, held: Held) -> None:
        if self.held.get(held.seq) is held:
            del self.held[held.seq]
        held.watch.release(held)
        self.noted(held.watch)
        self.look_for_end()

    def _nak(self, reply: str, rank: Rank) -> None:
        """Low items are waited for at the server; of a high one those who wait must be told, once the server has it."""
        if rank == "hi":
            self._work.start(self._nak_high(reply), name="high item given back")
        else:
            self._bus.send(reply, b"", b"", b"-NAK")

    async def _nak_high(self, reply: str) -> None:
        with contextlib.suppress(Unavailable):
            await self._bus.request(reply, b"-NAK")
        await self._bus.publish(queuenames.returned(self._place.queue, self._place.side, self._place.group))

    def _nak_spare(self, delivery: Delivery) -> None:
        self._nak(delivery.reply.decode(), queuenames.rank_of(delivery.subject))
        RETURNED.labels("spare").inc()

    # ------------------------------------------------------------------------------ what comes

    def _free(self) -> int:
        return self.sharing.free + len(self._forgotten) - len(self._spares) - self._aside

    def _delivered(self, delivery: Delivery) -> None:
        queue, item = self._queue(), item_of(delivery)
        former = self.held.get(item.index)
        if former is not None:  # the server forgot, or heard too late, that its consumer is at work on it
            former.reply = delivery.reply.decode()
            if item.index in self._forgotten:
                self._forgotten.pop(item.index).set()
        elif queue.max_delivery and item.deliveries > queue.max_delivery:
            self._aside += 1
            self._work.start(self._bury(delivery, item, queue), name="dead item")
        elif len(self.sharing) and not self.sharing.is_wanted(item):
            self._bus.send(delivery.reply.decode(), b"", b"", b"+ACK")
        elif not self._give(delivery, item):
            self._spares.append((self._loop.time(), delivery))
            self._loop.call_later(SPARE_S, self._return_spares)
        self.pulling.advance()

    def _give(self, delivery: Delivery, item: Item) -> bool:
        watch = self.sharing.find(item)
        if watch is None:
            return False
        now = self._loop.time()
        held = Held(item, delivery.reply.decode(), queuenames.rank_of(delivery.subject), watch, now)
        self.held[item.index] = held
        watch.give(held)
        self.sharing.note(watch)
        GIVEN.inc()
        self._watch_idle()
        return True

    def _share_spares(self) -> None:
        while self._spares and self.sharing.free > 0:
            _, delivery = self._spares[0]
            if not self._give(delivery, item_of(delivery)):
                return
            self._spares.popleft()

    def _return_spares(self) -> None:
        while self._spares and self._spares[0][0] <= self._loop.time() - SPARE_S:
            self._nak_spare(self._spares.popleft()[1])
        self.pulling.advance()

    async def _bury(self, delivery: Delivery, item: Item, queue: Queue) -> None:
        """Take a dead item out of its group; where that does not work it comes again after a while."""
        place = self._place
        try:
            if queue.dead_message_policy == "Rear":
                why = f"given out {queue.max_delivery} times without a commit"
                await rear.bury(self._bus, place.queue, place.side, item, group=place.group, why=why)
            await ack(self._bus, delivery)
            DEAD.labels(queue.dead_message_policy).inc()
        except SignalboxError as error:
            told = {"queue": place.queue, "side": place.side, "index": item.index, "reason": error.public_message}
            log.warning("queue.item_not_buried", **told, is_full=isinstance(error, QueueFull))
            nak(self._bus, delivery, _BURY_AGAIN_S)
        finally:
            self._aside -= 1
            self.pulling.advance()
            self.look_for_end()

    # ------------------------------------------------------------------------------ time

    def _watch_idle(self) -> None:
        if self._idle_timer is None and self._queue().max_idle_s and self.held:
            first = next(iter(self.held.values()))
            self._idle_timer = self._loop.call_at(first.since + self._queue().max_idle_s, self._return_idle)

    def _return_idle(self) -> None:
        """What was given out for too long goes to somebody else."""
        self._idle_timer = None
        most_s = self._queue().max_idle_s
        due = self._loop.time() - most_s
        for held in [one for one in self.held.values() if most_s and one.since <= due]:
            self.give_back(held, "idle")
        self._watch_idle()

    # ------------------------------------------------------------------------------ the end of the stream

    def look_for_end(self) -> None:
        """Find out whether an ended side has nothing more for this group."""
        if self._mark() is None or self._is_closed or self.held or self._spares or self._aside:
            return
        self._is_check_due = True
        if not self._is_checking:
            self._is_checking = True
            self._work.start(self._check_end(), name="end of a queue")

    async def _check_end(self) -> None:
        try:
            while self._is_check_due:
                self._is_check_due = False
                found = await standing(self._bus, self._place)
                if self._mark() is not None and found.is_through:
                    for watch in self.sharing:
                        watch.complete()
                        self.sharing.note(watch)
        finally:
            self._is_checking = False
