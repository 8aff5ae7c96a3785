"""The transport that a server behind a gate sees: the connection's own, but for what the gate must know."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from signalbox.front.gate import Gate

_LENGTH: Final = b"\r\ncontent-length: "
"""In the head of an answer whose body is no stream, as uvicorn writes it."""


class GatedTransport(asyncio.Transport):
    """One connection, seen from behind its gate. What no server behind it asks, such as the protocol, is left out."""

    def __init__(self, gate: "Gate", transport: asyncio.Transport) -> None:
        super().__init__()
        self._gate = gate
        self._transport = transport
        self._is_head = False
        self._held: bytes | bytearray | memoryview = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information about the connection, as its own transport has it."""
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._gate.is_closing

    def close(self) -> None:
        """What is written is still sent."""
        self.release()
        self._gate.close()

    def abort(self) -> None:
        """Closes at once."""
        self._gate.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._gate.become(protocol)

    def pause_reading(self) -> None:
        """Take no more."""
        self._gate.hold(is_paused=True)

    def resume_reading(self) -> None:
        """Take more."""
        self._gate.hold(is_paused=False)

    def expect_head(self) -> None:
        """What is written next is the head of an answer. Unless a stream follows, it is sent with its body's begin."""
        self._is_head = True

    def release(self) -> None:
        """Send a head that no body has followed."""
        held, self._held = self._held, b""
        if held:
            self.write(held)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends."""
        if self._gate.is_closing:
            return
        if self._is_head:
            self._is_head = False
            if _LENGTH in bytes(data):
                self._held = data
                return
        self._gate.wrote(len(self._held) + len(data))
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines([held, data])
        else:
            self._transport.write(data)

    def write_eof(self) -> None:
        """Sends no more, and reads on."""
        self.release()
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        """Whether :meth:`write_eof` can be done."""
        return self._transport.can_write_eof()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bytes of unsent answers from which the server is told to wait."""
        self._transport.set_write_buffer_limits(high, low)
