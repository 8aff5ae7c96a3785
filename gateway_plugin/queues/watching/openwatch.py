"""One watch: what a consumer has been given and has not committed, within its window."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from gateway_plugin.queues.items import Consumer, Item
from gateway_plugin.queues.watching.groups import Place
from signalbox.program import log
from signalbox.program.errors import Conflict, InvalidRequest, SignalboxError
from signalbox.wire.queuenames import Rank
from signalbox.wire.queues import WatchState

if TYPE_CHECKING:
    from gateway_plugin.queues.watching.feeder import Feeder

MOST_WINDOW: Final = 1024
UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Of one watch: items that wait here for its connection take at most so much, or are a single one."""
ALL_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Of all: each has an equal part of that at most. Else one account with a thousand watches that read nothing fills the
memory of the plugin with what it has put into one queue."""
AHEAD: Final = 64
"""Items on their way to a consumer that commits none: the next ones are fetched while these are sent."""
_REASON: Final = 200
"""Characters of a consumer's reason that the log takes."""


class WatchMoved(Conflict):
    """This watch has ended: its consumer opened another one."""


class WatchClosed(Conflict):
    """The watch is closed."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a consumer asks for. index: where a group that nobody knows yet begins; 0 = at the head, negative = behind
    what is there. window: of items that it has not committed. is_index_only: items come without their data.
    is_auto_commit: items count as committed once they are sent. tags: that an item must have; what has not is committed
    for the group."""

    index: int = 0
    window: int = 1
    is_index_only: bool = False
    is_auto_commit: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    def require_sound(self) -> None:
        """Raise :class:`InvalidRequest` for a window that nobody has."""
        if not 1 <= self.window <= MOST_WINDOW and not self.is_auto_commit:
            raise InvalidRequest(f"A window is of 1 to {MOST_WINDOW} items.", field="_window_", limit=MOST_WINDOW)


class Held:
    """An item that was given to a watch and is not committed. item: until it is sent. since: loop seconds.

    is_committing: the server is being told, so it is not given back meanwhile.
    """

    __slots__ = ("is_committing", "item", "rank", "reply", "seq", "since", "watch")

    def __init__(self, item: Item, reply: str, rank: Rank, watch: "OpenWatch", since: float) -> None:
        self.seq = item.index
        self.item: Item | None = item
        self.reply = reply
        self.rank = rank
        self.watch = watch
        self.since = since
        self.is_committing = False


class OpenWatch:
    """A consumer's watch, made by :meth:`Watches.watch`; its items come in the order of :meth:`next`.

    place, consumer, watch: what it is of. since: UTC seconds, see :class:`WatchState`. ended: set when it gives no more
    items, because the consumer is watching elsewhere, its queue is gone, or it is closed. noted, turn: the free slots
    that its feeder counts, and since when among those of other watches.
    """

    def __init__(
        self, place: Place, consumer: Consumer, watch: Watch, *, since: float, most_unsent: int, feeder: "Feeder"
    ) -> None:
        self.place = place
        self.consumer = consumer
        self.watch = watch
        self.since = since
        self.ended = asyncio.Event()
        self.status: Literal["Running", "Complete", "Leaving"] = "Running"
        self.held: dict[int, Held] = {}
        self.noted = 0
        self.turn = 0
        self.feeder = feeder
        self._most_unsent = max(1, most_unsent)
        self._ready: deque[Held] = deque()
        self._sent: Held | None = None
        self._doubted: set[int] = set()
        self._index = 0
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()
        self._wake = asyncio.Event()
        self._why: SignalboxError | None = None
        self.on_close: Callable[[OpenWatch], Awaitable[None]] | None = None

    # ------------------------------------------------------------------------------ the consumer's side

    async def next(self) -> Item | None:
        """The next item, as soon as there is one; None where the stream has ended and the group has committed all.

        An item of a watch that commits by itself is committed when the one after it is asked for. Raises
        :class:`WatchMoved` where the same consumer opened a later watch, :class:`NotFound` where the queue is gone, and
        :class:`WatchClosed`. For one caller at a time.
        """
        if self._sent is not None:
            self.feeder.acknowledge(self._sent)
            self._sent = None
        while True:
            if self._why is not None:
                raise self._why
            if self._ready:
                return self._take(self._ready.popleft())
            if self.status == "Complete":
                return None
            self._wake.clear()
            await self._wake.wait()

    async def close(self, *, code: str = "", reason: str = "") -> None:
        """Give back at once what is not committed; its delivery count rises. Idempotent. code, reason: for the log."""
        self.end(WatchClosed())
        if self.on_close is not None:
            on_close, self.on_close = self.on_close, None
            told = {**self.place._asdict(), "uid": self.consumer.uid, "pending": len(self.held)}
            log.info("queue.watch_closed", **told, code=code, reason=reason[:_REASON])
            await on_close(self)

    def resize(self, window: int) -> None:
        """Have it hold so many items from now on; what is more than that stays until it is committed."""
        if window != self.watch.window:
            self.watch = dataclasses.replace(self.watch, window=window)
            self.feeder.noted(self)

    @property
    def state(self) -> WatchState:
        """How it stands, for others to see."""
        watch = self.watch
        return WatchState(
            queue=self.place.queue,
            side=self.place.side,
            group=self.place.group,
            uid=self.consumer.uid,
            index=self._index,
            pending=len(self.held),
            window=watch.window,
            slots=max(0, watch.window - len(self.held)),
            idle_s=round(self._loop.time() - self._active_at, 3),
            status=self.status,
            is_auto_commit=watch.is_auto_commit,
            since=self.since,
            tags=dict(watch.tags),
        )

    # ------------------------------------------------------------------------------ the feeder's side

    @property
    def slots(self) -> int:
        """How many more items it may be given now."""
        if self._why is not None or self.status != "Running":
            return 0
        room = AHEAD if self.watch.is_auto_commit else self.watch.window
        taken = len(self.held) - len(self._doubted)
        return max(0, min(room - taken, self._most_unsent - len(self._ready)))

    def give(self, held: Held) -> None:
        """An item for the consumer, in one of its free slots."""
        self.held[held.seq] = held
        self._ready.append(held)
        self._index = held.seq
        self._active_at = self._loop.time()
        self._wake.set()

    def release(self, held: Held) -> None:
        """Whatever became of an item, it is not the consumer's any more."""
        if self.held.get(held.seq) is held:
            del self.held[held.seq]
            self._doubted.discard(held.seq)
            self._active_at = self._loop.time()
            if held.item is not None and held in self._ready:
                self._ready.remove(held)

    def doubt(self, before: float) -> None:
        """Have what was given before that loop time, and may be committed by now, take up no slot."""
        self._doubted.update(held.seq for held in self.held.values() if held.since < before)

    def leave(self) -> None:
        """The consumer takes no more, and commits what it has."""
        if self.status == "Running":
            self.status = "Leaving"

    def complete(self) -> None:
        """There is nothing more, and there will not be."""
        if self.status == "Running":
            self.status = "Complete"
            self._wake.set()

    def end(self, why: SignalboxError) -> None:
        """Give no more items: :meth:`next` raises this. What is held stays so until :meth:`close`. Idempotent."""
        if self._why is None:
            self._why = why
            self.ended.set()
            self._wake.set()

    def _take(self, held: Held) -> Item:
        item = held.item
        assert item is not None, "an item that is ready was not sent"
        held.item = None
        if self.watch.is_auto_commit:
            self._sent = held
        self.feeder.noted(self)
        return replace(item, data=b"") if self.watch.is_index_only else item
