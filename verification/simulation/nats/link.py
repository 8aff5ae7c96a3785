"""The network between one client and the server, with its faults, and the client's end of it."""

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Callable
from typing import Any, Final

from signalbox.bus.transport.interface import Events, Handler
from signalbox.program.settings import Wire
from verification.simulation.nats.server import MAX_PAYLOAD, Server
from verification.simulation.nats.session import Client, Pipe, Session

_PINGS_OUT: Final = 2
"""Unanswered pings after which the client takes its connection for dead, as nats-py is told."""


class Link:
    """See the module. One client, over all its connections.

    rng: draws delays and duplicates. delay_s: least and longest one-way delay. duplicates: share of what the client
    sends that arrives a second time, up to ``duplicate_late_s`` later (a proxy that repeats itself).
    """

    def __init__(
        self, server: Server, *, rng: random.Random | None = None, delay_s: tuple[float, float] = (0.000_1, 0.000_5)
    ) -> None:
        self.server = server
        self.rng = rng or server.rng
        self.delay_s = delay_s
        self.duplicates = 0.0
        self.duplicate_late_s = 1.0
        self.is_refusing = False
        """New connections are refused, as where nothing listens."""
        self._is_up_held = self._is_down_held = False
        self._session: Session | None = None
        self._client: Client | None = None

    # ------------------------------------------------------------------------------ faults

    def hold(self, *, up: bool = True, down: bool = True) -> None:
        """Nothing passes in these directions, without an error: a partition, a one-way loss, a half-open connection."""
        self._is_up_held |= up
        self._is_down_held |= down
        self._apply()

    def release(self) -> None:
        """What was held arrives, late. Connections given up meanwhile are gone, what they had sent is not."""
        self._is_up_held = self._is_down_held = False
        self._apply()

    def cut(self, late_s: float | None = None) -> None:
        """Reset the connection. What the client had sent is lost, or acted on ``late_s`` later."""
        session, self._session = self._session, None
        if session is None:
            return
        self._late(session, late_s)
        session.down.shut()
        self.server.end(session)
        assert self._client is not None
        self._client.lost(session)

    def die(self) -> None:
        """The client's process was killed: what it had sent arrives, then its end."""
        session, self._session = self._session, None
        if session is not None:
            session.down.shut()
            session.up.put(self.server.end, session)
            session.up.finish()

    # ------------------------------------------------------------------------------ connecting

    def dial(self, client: Client, context: contextvars.Context) -> Session:
        """A new connection; ``client`` is welcomed, or told that it is lost, or nothing."""
        loop = asyncio.get_running_loop()
        up = Pipe(loop, self.server.context, self._delay)
        down = Pipe(loop, context, self._delay)
        session = Session(client, up, down)
        self._session, self._client = session, client
        self._apply()
        if self.is_refusing:
            session.refuse()
        else:
            up.put(self.server.accept, session)
        return session

    def hang_up(self, session: Session) -> None:
        """The client closes a connection; on a dead network the server notices later by its pings."""
        session.down.shut()
        session.up.put(self.server.end, session)
        session.up.finish()
        if self._session is session:
            self._session = None

    def send(self, session: Session, act: Callable[..., None], *args: Any) -> None:
        """What a client sends."""
        session.up.put(self.server.receive, session, act, *args)
        if self.duplicates and self.rng.random() < self.duplicates and act == self.server.publish:
            late_s = self.rng.uniform(0, self.duplicate_late_s)
            self.server.later_from(session, late_s, act, *args)

    def _delay(self) -> float:
        least, longest = self.delay_s
        return least + (longest - least) * self.rng.random()

    def _late(self, session: Session, late_s: float | None) -> None:
        for act, args in session.up.shut():
            if late_s is not None:
                self.server.later(late_s, act, *args)

    def _apply(self) -> None:
        if self._session is None:
            return
        for pipe, is_held in ((self._session.up, self._is_up_held), (self._session.down, self._is_down_held)):
            if is_held:
                pipe.hold()
            else:
                pipe.release()


class ModelConnection(Client):
    """The client's end: a ``Transport`` (:mod:`signalbox.bus.transport.interface`) that reconnects as nats-py does."""

    server_version = ""

    def __init__(self, events: Events, link: Link) -> None:
        self.is_open = False
        self.max_body_bytes = MAX_PAYLOAD
        self.unsent_bytes = 0
        self._events = events
        self._link = link
        self._server = link.server
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._handlers: dict[int, Handler] = {}
        self._subjects: dict[int, str] = {}
        self._count = 0
        self._session: Session | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._pings = 0
        self._keeper: asyncio.Task[None] | None = None
        self._is_lost = asyncio.Event()
        self._connect_s = self._wait_s = self._ping_s = 0.0
        self._is_closed = False

    # ------------------------------------------------------------------------------ Transport

    async def open(self, settings: Wire, role: str, name: str) -> None:
        """Connect, and from then on reconnect for ever; returns when first connected."""
        self._connect_s = settings.request_timeout_s
        self._wait_s = settings.reconnect_wait_s * self._link.rng.uniform(1, 2)
        self._ping_s = settings.ping_interval_s
        await self._connect_for_ever()
        self._keeper = asyncio.create_task(self._keep(), name="connection")

    def send_message(self, subject: str, reply: bytes, fields: bytes, data: bytes) -> None:
        """One publish; dropped while there is no connection."""
        session = self._session
        if self.is_open and session is not None:
            head = b"NATS/1.0\r\n%b\r\n" % fields if fields else b""
            self._link.send(session, self._server.publish, session, subject, reply, head, data)

    def listen(self, subject: str, handler: Handler) -> int:
        """Subscribe; the subscription survives reconnects. Returns its id."""
        self._count += 1
        sid = self._count
        self._handlers[sid], self._subjects[sid] = handler, subject
        if self.is_open and self._session is not None:
            self._link.send(self._session, self._server.subscribe, self._session, sid, subject)
        return sid

    def unsubscribe(self, sid: int) -> None:
        """Have the server send no more; what is on its way still reaches the handler."""
        if self.is_open and self._session is not None:
            self._link.send(self._session, self._server.unsubscribe, self._session, sid)

    def unlisten(self, sid: int) -> None:
        """End a subscription. Idempotent."""
        if self._handlers.pop(sid, None) is not None:
            del self._subjects[sid]
            self.unsubscribe(sid)

    def write_out(self) -> None:
        """Everything is under way already."""

    async def round_trip(self, timeout_s: float) -> None:
        """Return when the server has processed all sent so far. Raises ``TimeoutError``."""
        answered = self._loop.create_future()
        if self._session is not None:
            self._ping(answered)
        async with asyncio.timeout(timeout_s):
            await answered

    async def close(self) -> None:
        """End it for good."""
        self._is_closed = True
        self.is_open = False
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        if self._session is not None:
            self._link.hang_up(self._session)
            self._session = None

    # ------------------------------------------------------------------------------ what the server says

    def welcomed(self, session: Session) -> None:
        """Connected."""
        if session is self._session and self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def received(self, session: Session, sid: int, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        """A message."""
        if session is not self._session:
            return
        handler = self._handlers.get(sid)
        if handler is not None:
            try:
                handler(subject, reply, head, data)
            except Exception as error:  # noqa: BLE001  as in the real connection
                self._events.fault(error)

    def lost(self, session: Session) -> None:
        """The connection is gone, or never came to be."""
        if session is self._session:
            if self._arrival is not None and not self._arrival.done():
                self._arrival.set_exception(ConnectionRefusedError("no server listens"))
            self._is_lost.set()

    # ------------------------------------------------------------------------------ staying connected

    async def _keep(self) -> None:
        """Ping; when the connection is lost, or two pings are unanswered, connect anew."""
        while True:
            try:
                async with asyncio.timeout(self._ping_s):
                    await self._is_lost.wait()
            except TimeoutError:
                self._pings += 1
                if self._pings <= _PINGS_OUT:
                    self._ping(None)
                    continue
            self.is_open = False
            session, self._session = self._session, None
            if session is not None:
                self._link.hang_up(session)
            await self._events.lost()
            await self._connect_for_ever()
            await self._events.restored()

    async def _connect_for_ever(self) -> None:
        while True:
            try:
                await self._connect()
            except (OSError, TimeoutError) as error:
                await self._events.error(error)
                await asyncio.sleep(self._wait_s)
            else:
                return

    async def _connect(self) -> None:
        """One attempt. Raises ``OSError`` or ``TimeoutError``."""
        self._is_lost.clear()
        self._pings = 0
        self._arrival = self._loop.create_future()
        self._session = session = self._link.dial(self, self._context)
        try:
            async with asyncio.timeout(self._connect_s):
                await self._arrival
                answered = self._loop.create_future()
                for sid, subject in self._subjects.items():
                    self._link.send(session, self._server.subscribe, session, sid, subject)
                self._ping(answered)
                await answered
        except (OSError, TimeoutError):
            self._link.hang_up(session)
            self._session = None
            raise
        finally:
            self._arrival = None
        self.server_version = self._server.version
        self.is_open = True

    def _ping(self, answered: asyncio.Future[None] | None) -> None:
        session = self._session
        if session is None:
            return

        def pong() -> None:
            self._pings = 0
            if answered is not None and not answered.done():
                answered.set_result(None)

        with contextlib.suppress(ConnectionError):
            self._link.send(session, session.pong, pong)
