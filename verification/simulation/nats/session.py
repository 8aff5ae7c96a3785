"""One connection of a client as the server sees it, and the two pipes it runs through."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any


class Pipe:
    """One direction of a connection: in order, with delays, and what a TCP connection does when nothing passes.

    context: whose callbacks the far end's are; what is put in is delivered by that end's own clock.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: contextvars.Context, delay: Callable[[], float]
    ) -> None:
        self._loop, self._context, self._delay = loop, context, delay
        self._items: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._last_at = 0.0
        self._arrived = 0
        self._is_held = self._is_shut = self._is_finished = False

    def put(self, act: Callable[..., None], *args: Any) -> None:
        """Have ``act(*args)`` run at the far end, after everything put in before."""
        if self._is_shut or self._is_finished:
            return
        self._items.append((act, args))
        # Their clocks may differ: the far end's decides when its callback runs.
        at = max(self._last_at, self._context.copy().run(self._loop.time) + self._delay())
        self._last_at = at
        self._loop.call_at(at, self._arrive, context=self._context)

    def hold(self) -> None:
        """Nothing arrives any more; nothing is lost either."""
        self._is_held = True

    def release(self) -> None:
        """What was held arrives now."""
        self._is_held = False
        while self._arrived:  # in the far end's own context: who releases is neither end
            self._arrived -= 1
            self._loop.call_soon(self._arrive, context=self._context)

    def finish(self) -> None:
        """Nothing is put in any more; what is in still arrives."""
        self._is_finished = True

    def shut(self) -> deque[tuple[Callable[..., None], tuple[Any, ...]]]:
        """Nothing passes any more; returns what was on its way."""
        self._is_shut = True
        items, self._items = self._items, deque()
        self._arrived = 0
        return items

    def _arrive(self) -> None:
        if self._is_held:
            self._arrived += 1
        else:
            self._pass()

    def _pass(self) -> None:
        if self._items:
            act, args = self._items.popleft()
            act(*args)


class Session:
    """See the module. ``client`` is told through the pipe down."""

    def __init__(self, client: "Client", up: Pipe, down: Pipe) -> None:
        self.up, self.down = up, down
        self.sids: set[int] = set()
        self.seen_at = 0.0
        self._client = client

    def welcome(self) -> None:
        """The server takes this client."""
        self.down.put(self._client.welcomed, self)

    def refuse(self) -> None:
        """No server listens at the port."""
        self.down.put(self._client.lost, self)

    def deliver(self, sid: int, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        """A message for one of the client's subscriptions."""
        self.down.put(self._client.received, self, sid, subject, reply, head, data)

    def pong(self, answer: Callable[[], None]) -> None:
        """Everything the client sent before has been processed."""
        self.down.put(answer)

    def closed(self) -> None:
        """The server has ended the connection: what it had sent still arrives."""
        self.down.put(self._client.lost, self)
        self.up.shut()


class Client:
    """What a session tells its client. :class:`verification.simulation.nats.link.ModelConnection` is one."""

    def welcomed(self, session: Session) -> None:
        """Connected."""
        raise NotImplementedError

    def received(self, session: Session, sid: int, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        """A message."""
        raise NotImplementedError

    def lost(self, session: Session) -> None:
        """The connection is gone, or never came to be."""
        raise NotImplementedError
