"""Fuzzes a gateway's listener with calls of queues and with websockets, as bytes of one connection.

The listener is the real one, from the gate to the dialect, before queues in memory. Whatever comes, each answer is
complete and none is our failure; a websocket ends with a frame that blames the client, or with its connection.
"""

import asyncio
import atexit
import re
import struct
from collections.abc import Hashable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from tests.rigs.memoryqueues import queue_front

SEEDS: Final = Path(__file__).parent / "corpus" / "queues"
SHARE: Final = 8_000
LIMIT_S: Final = 10.0
_FRAMES: Final = (
    b"\x89\x84maskabcd",
    b"\x82\x84maskabcd",
    b"\x88\x82mask\x6e\x89",
    b"\x81\xfe\xff\xffmask",
    b"\x00\x80mask",
)
TOKENS: Final = (
    *_FRAMES,
    *(
        word.encode()
        for word in (
            "GET ",
            "POST ",
            "PUT ",
            "DELETE ",
            "/api/predict/chat",
            "/v1/queues/chat",
            "/sink",
            "?_watch_=true",
            "&_index_=",
            "&_indexes_=1%2C2",
            "&_length_=",
            "&_timeout_=1s",
            "&_window_=",
            "&_auto_commit_=true",
            "&_auto_delete_=false",
            "&_raw_=true",
            "&_negative_=true&_code_=Shutdown",
            "&_priority_=1",
            "&_search_=true",
            "&_count_=true",
            "&_attrs_=true",
            "&_eos_=true",
            "&_trunc_=true",
            "&_forget_=true",
            "&requestId=",
            "%ff",
            "%00",
            "\r\n",
            "\r\n\r\n",
            "Connection: Upgrade\r\n",
            "Upgrade: websocket\r\n",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            "Sec-WebSocket-Version: 13\r\n",
            "Sec-WebSocket-Extensions: permessage-deflate\r\n",
            "X-EAS-QueueService-Redis-Uid: u1\r\n",
            "X-EAS-QueueService-Redis-Gid: g\r\n",
            "X-EAS-QueueService-Access-Rear: true\r\n",
            "X-EAS-QueueService-Priority: 1\r\n",
            "Content-Length: 4\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Authorization: nobody\r\n",
            "Authorization: reader\r\n",
        )
    ),
)
_STATUS: Final = re.compile(rb"(?:\A|(?<=[\r\n}\x00-\xff]))HTTP/1\.1 ([1-5][0-9][0-9]) [^\r\n]*\r\n")
_OFFER: Final = re.compile(rb"\AGET [^\r]*\r\n(?:[^\r]*\r\n)*upgrade:[ \t]*websocket", re.IGNORECASE)
_ANSWER_S: Final = 0.5
_NOT_OURS: Final = frozenset({501, 505})
"""Codings and versions of HTTP that nobody need know."""


def judged(said: bytes) -> tuple[Hashable, ...]:
    """The statuses in what a connection was sent, and the code of its close frame. Raises AssertionError where one is
    our failure."""
    statuses = [int(found[1]) for found in _STATUS.finditer(said)]
    for status in statuses:
        assert status < 500 or status in _NOT_OURS, said[-600:]
    code = 0
    if 101 in statuses:
        frames = said[said.rindex(b"HTTP/1.1 101 ") :].partition(b"\r\n\r\n")[2]
        code = _close_code(frames)
        assert code not in {1011, 1012, 1013}, (code, frames[-300:])
    return (*statuses[:3], code)


async def answers(address: tuple[str, int], data: bytes) -> bytes:
    """All that a client gets which sends these bytes, and then closes its sending half. What follows the request for a
    websocket comes once that is answered."""
    head, end, frames = data.partition(b"\r\n\r\n")
    is_of_websocket = _OFFER.search(head) is not None
    said = b""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(LIMIT_S):
            writer.write(head + end if is_of_websocket else data)
            if is_of_websocket and end:
                with suppress(TimeoutError):  # it is none after all, and waits for its body
                    said = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _ANSWER_S)
                writer.write(frames)
            if writer.can_write_eof():
                writer.write_eof()
            return said + await reader.read()
    except (OSError, asyncio.IncompleteReadError):
        return said
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


def one(data: bytes) -> Hashable:
    """Raises AssertionError where a promise is broken, and TimeoutError where a connection goes on for ever."""
    return _listener().judge(data)


def _close_code(frames: bytes) -> int:
    """The code of the close frame behind the items of a websocket, 0 where there is none. Server's frames: unmasked."""
    at = 0
    while at + 2 <= len(frames):
        size, start = frames[at + 1] & 0x7F, at + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, start = int.from_bytes(frames[start : start + width], "big"), start + width
        if frames[at] & 0x0F == 8:
            return int(struct.unpack("!H", frames[start : start + 2])[0]) if size >= 2 else 0
        at = start + size
    return 0


class _Listener:
    """A listener before queues in memory, on an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._front, server, _ = self._loop.run_until_complete(self._stack.enter_async_context(queue_front()))
        host, _, port = server.address.rpartition(":")
        self._address = host, int(port)
        atexit.register(self._end)

    def _end(self) -> None:
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()

    def judge(self, data: bytes) -> Hashable:
        """What became of the bytes of one connection; the queues are as before."""
        self._front.queues.reset()
        return judged(self._loop.run_until_complete(answers(self._address, data)))


_made: list[_Listener] = []


def _listener() -> _Listener:
    """Started with the first bytes."""
    if not _made:
        _made.append(_Listener())
    return _made[0]
