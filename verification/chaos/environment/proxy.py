"""A TCP proxy between one program and NATS, and everything a network can do to the bytes in between.

It forwards bytes and never looks into them. What is held back is late, not lost: TCP has no other loss
that its ends could tell from it, until a connection dies.
"""

import asyncio
import socket
import struct
from collections import deque
from typing import Final, Literal, NamedTuple, Self, cast

Way = Literal["up", "down"]
"""``up``: from the program to NATS."""
WAYS: Final[tuple[Way, ...]] = ("up", "down")
_LINGER_OFF: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close send RST."""
_HELD_LIMIT_BYTES: Final = 8 * 1024 * 1024


class Weather(NamedTuple):
    """What the network does now. held: ways whose bytes wait. delay_s: per chunk, each way.

    is_refusing: new connections are reset. is_deaf: new ones are accepted and lead nowhere.
    """

    held: frozenset[Way] = frozenset()
    delay_s: float = 0.0
    is_refusing: bool = False
    is_deaf: bool = False


CALM: Final = Weather()
CUT: Final = Weather(held=frozenset(WAYS), is_deaf=True)
"""Nothing passes and neither end gets an error, as where every packet is dropped."""


class Proxy:
    """Listens on ``host`` at a port the system chose and forwards to ``target`` (host, port)."""

    def __init__(self, target: tuple[str, int], *, host: str = "127.0.0.1") -> None:
        self.target, self.host, self.port = target, host, 0
        self.weather = CALM
        self.links: set[_Link] = set()
        self.connections = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where the program connects instead of ``target``."""
        return f"nats://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Side(_Link(self), "up"), self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def change(self, weather: Weather) -> None:
        """From now on; what was held and is no longer goes on its way."""
        self.weather = weather
        for link in list(self.links):
            link.changed()

    def reset(self) -> None:
        """RST to both ends of every connection; what was held is lost with them."""
        for link in list(self.links):
            link.abort()

    def reset_deaf(self) -> None:
        """RST to those who were accepted and led nowhere: a packet is sent again, their first is not."""
        for link in list(self.links):
            if "down" not in link.sides:
                link.abort()

    def hang_up(self) -> None:
        """FIN to both ends of every connection, after what is on its way."""
        for link in list(self.links):
            link.end()

    def strand(self) -> "Stranded":
        """Existing connections become half-open: nothing passes, without an error. New ones follow the weather."""
        links = [link for link in self.links if not link.is_stranded]
        for link in links:
            link.is_stranded = True
        return Stranded(links)


class Stranded:
    """Half-open connections, whose bytes from the program can still arrive."""

    def __init__(self, links: list["_Link"]) -> None:
        self._links = links

    @property
    def is_given_up(self) -> bool:
        """Whether the program has closed its ends of all of them."""
        return all("up" not in link.sides for link in self._links)

    def deliver_late(self) -> int:
        """What the program sent on them arrives now, however long it has given them up; bytes."""
        return sum(link.deliver_late() for link in self._links)

    def drop(self) -> None:
        """What was sent on them is lost."""
        for link in self._links:
            link.abort()


class _Link:
    """One connection through the proxy: two sides and what is held between them."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.sides: dict[Way, _Side] = {}
        self.waiting: dict[Way, deque[bytes]] = {"up": deque(), "down": deque()}
        self.is_over = False
        self.is_stranded = False
        self._is_paused: set[Way] = set()
        self._connecting: asyncio.Task[None] | None = None

    def opened(self, side: "_Side") -> None:
        """The program is connected: refuse, stay deaf, or reach out to NATS."""
        proxy = self.proxy
        proxy.links.add(self)
        proxy.connections += 1
        self.sides["up"] = side
        if proxy.weather.is_refusing:
            self.abort()
        elif not proxy.weather.is_deaf:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, side = await loop.create_connection(lambda: _Side(self, "down"), *self.proxy.target)
        except OSError:
            self.abort()
            return
        if self.is_over:
            side.abort()
            return
        self.sides["down"] = side
        self.changed()

    def received(self, way: Way, data: bytes) -> None:
        """Bytes that came in on their ``way``."""
        delay_s = self.proxy.weather.delay_s
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._pass_on, way, data)
        else:
            self._pass_on(way, data)

    def _pass_on(self, way: Way, data: bytes) -> None:
        self.waiting[way].append(data)
        self._drain(way)

    def changed(self) -> None:
        """The weather did, or an end was found."""
        for way in WAYS:
            self._drain(way)

    def _drain(self, way: Way) -> None:
        out = self.sides.get("down" if way == "up" else "up")
        queue = self.waiting[way]
        if out is not None and way not in self.proxy.weather.held and not self.is_stranded:
            while queue:
                out.write(queue.popleft())
        into = self.sides.get(way)
        is_full = sum(map(len, queue)) > _HELD_LIMIT_BYTES if queue else False
        if into is not None and is_full != (way in self._is_paused):
            into.hold(is_held=is_full)
            self._is_paused ^= {way}

    def lost(self, side: "_Side") -> None:
        """One end closed: so does the other, unless it is meant to live on."""
        for way, known in list(self.sides.items()):
            if known is side:
                del self.sides[way]
        if not self.is_over and not self.is_stranded:
            self.end()

    def deliver_late(self) -> int:
        """What the program sent arrives at NATS, then the connection ends; bytes."""
        down, size = self.sides.get("down"), 0
        while self.waiting["up"] and down is not None:
            data = self.waiting["up"].popleft()
            size += len(data)
            down.write(data)
        self.end()
        return size

    def end(self) -> None:
        """FIN both ways."""
        self._forget()
        for side in list(self.sides.values()):
            side.finish()

    def abort(self) -> None:
        """RST both ways."""
        self._forget()
        for side in list(self.sides.values()):
            side.abort()

    def _forget(self) -> None:
        self.is_over = True
        self.proxy.links.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()


class _Side(asyncio.Protocol):
    """One socket of a link. way: of the bytes that come in here."""

    def __init__(self, link: _Link, way: Way) -> None:
        self._link, self._way = link, way
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        if self._way == "up":
            self._link.opened(self)

    def data_received(self, data: bytes) -> None:
        self._link.received(self._way, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost(self)

    def write(self, data: bytes) -> None:
        """Send."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def hold(self, *, is_held: bool) -> None:
        """Read no further, so that the sender's socket fills up; or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if is_held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def finish(self) -> None:
        """FIN after what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """RST."""
        if self._transport is None:
            return
        found = self._transport.get_extra_info("socket")
        if found is not None and found.fileno() >= 0:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
        self._transport.abort()
