"""The client protocol of NATS, read from whatever pieces a socket gives, and the header blocks in it."""

import json
from collections.abc import Callable
from typing import Any, Final, Protocol

from nats.errors import ProtocolError

from signalbox.bus.transport.interface import Handler

_MAX_LINE: Final = 65_536
_MSG: Final = 0x4D
_HMSG: Final = 0x48


class Receiver(Protocol):
    """Whom the frames are for: handlers get the messages, nats-py's methods the control lines."""

    handlers: dict[int, Handler]
    on_fault: Callable[[Exception], None]

    async def _process_ping(self) -> None: ...
    async def _process_pong(self) -> None: ...
    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None: ...
    async def _process_err(self, err_msg: str) -> None: ...


class FrameParser:
    """Dispatches messages at once, and gives the rare control lines to nats-py.

    Takes the place of ``nats.protocol.parser.Parser``: ``parse`` and ``reset`` are what nats-py calls.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._rest = b""
        self._parts: list[bytes] = []
        self._have = 0
        self._want = 0
        self._epoch = 0

    def reset(self) -> None:
        """Forget a half-read message: a new connection starts."""
        self._rest = b""
        self._parts.clear()
        self._have = self._want = 0
        self._epoch += 1

    async def parse(self, data: bytes = b"") -> None:
        """Dispatch every whole message in ``data`` and what was left before."""
        if self._want:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._want:
                return
            data = b"".join(self._parts)
            self._parts.clear()
            self._want = 0
        elif self._rest:
            data = self._rest + data
            self._rest = b""
        epoch = self._epoch
        pos = 0
        while True:
            try:
                pos = self._messages(data, pos)
            except (ValueError, IndexError) as error:
                # As a protocol error it costs the connection; anything else would end nats-py's reader for good.
                raise ProtocolError("nats: malformed message line") from error
            if pos >= len(data) or self._want:
                return
            end = data.find(b"\r\n", pos)
            if end < 0:
                if len(data) - pos > _MAX_LINE:
                    raise ProtocolError("nats: control line too long")
                self._rest = data[pos:]
                return
            await self._control(data[pos:end])
            if epoch != self._epoch:
                return
            pos = end + 2

    def _messages(self, data: bytes, pos: int) -> int:
        """Dispatch messages from ``pos`` on; returns where something else, or half a message, begins."""
        handlers = self._receiver.handlers
        size = len(data)
        while pos < size:
            first = data[pos]
            if first != _HMSG and first != _MSG:  # noqa: PLR1714  a set costs more here, per message
                break
            end = data.find(b"\r\n", pos)
            if end < 0:
                break
            args = data[pos:end].split()
            body = end + 2
            stop = body + int(args[-1])
            if stop + 2 > size:
                self._parts.append(data[pos:])
                self._have = size - pos
                self._want = stop + 2 - pos
                break
            header = b""
            if first == _HMSG:
                start = body
                body += int(args[-2])
                header = data[start:body]
                reply = args[3] if len(args) == 6 else b""
            else:
                reply = args[3] if len(args) == 5 else b""
            pos = stop + 2
            handler = handlers.get(int(args[2]))
            if handler is not None:
                try:
                    handler(args[1], reply, header, data[body:stop])
                except Exception as error:  # noqa: BLE001  one bad handler must not end the connection
                    self._receiver.on_fault(error)
        return pos

    async def _control(self, line: bytes) -> None:
        receiver = self._receiver
        op = line[:4].upper()
        if op == b"PING":
            await receiver._process_ping()  # noqa: SLF001  the parser is part of the client
        elif op == b"PONG":
            await receiver._process_pong()  # noqa: SLF001
        elif op == b"INFO":
            await receiver._process_info(json.loads(line[5:]))  # noqa: SLF001
        elif op == b"-ERR":
            await receiver._process_err(line[5:].decode(errors="replace"))  # noqa: SLF001
        elif op != b"+OK":
            raise ProtocolError(f"nats: unknown control line {line[:40]!r}")


def status(header: bytes) -> int:
    """The status of a header block (``NATS/1.0 404 ...``), 0 if it has none."""
    return int(header[9:12]) if header[8:9] == b" " else 0


def status_text(header: bytes) -> str:
    """What follows the status number in its line."""
    return header[12 : header.find(b"\r\n")].decode(errors="replace").strip()


def parse_headers(header: bytes) -> dict[str, str]:
    """Names and values of a header block. A repeated name keeps its last value."""
    found: dict[str, str] = {}
    for line in header.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found
