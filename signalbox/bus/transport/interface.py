"""What a bus needs of its connection, and what it is told: the simulation has a connection of its own."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from signalbox.program.settings import Wire

Handler = Callable[[bytes, bytes, bytes, bytes], None]
"""``(subject, reply, header block or b"", body)``; must not block and must not raise."""


class Events(NamedTuple):
    """Callbacks for the events of a connection.

    fault: exceptions a handler raised. refusal: the server's text when it denies a publish or a subscription; the
    server names the subject in it. error: why connecting failed. lost, restored: the connection went and came back.
    """

    fault: Callable[[Exception], None]
    refusal: Callable[[str], None]
    error: Callable[[Exception], Awaitable[None]]
    lost: Callable[[], Awaitable[None]]
    restored: Callable[[], Awaitable[None]]


class Transport(Protocol):
    """What :class:`signalbox.bus.client.Bus` needs of its connection: a :class:`Connection`, or a model of one."""

    @property
    def is_open(self) -> bool:
        """Whether a message sent now goes to a server."""

    @property
    def max_body_bytes(self) -> int:
        """Largest header block and body together that the server takes."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes the socket has not taken yet."""

    @property
    def server_version(self) -> str:
        """Version of the connected server, as it reports it."""

    async def open(self, settings: Wire, role: str, name: str) -> None:
        """Connect, and from then on reconnect for ever; returns when first connected."""

    def send_message(self, subject: str, reply: bytes, fields: bytes, data: bytes) -> None:
        """Put one message into this loop turn's write. ``fields``: encoded header lines, may be empty."""

    def listen(self, subject: str, handler: Handler) -> int:
        """Subscribe; the subscription survives reconnects. Returns its id."""

    def unsubscribe(self, sid: int) -> None:
        """Have the server send no more; what is on its way still reaches the handler."""

    def unlisten(self, sid: int) -> None:
        """End a subscription. Idempotent."""

    def write_out(self) -> None:
        """Hand what waits to the socket now."""

    async def round_trip(self, timeout_s: float) -> None:
        """Return when the server has processed all sent so far. Raises ``TimeoutError`` or ``OSError``."""

    async def close(self) -> None:
        """End it for good."""
