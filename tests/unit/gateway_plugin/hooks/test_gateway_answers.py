"""How our HTTP/2 server writes: all that one turn of the loop sends in one piece."""

import asyncio
from functools import partial

from gateway_plugin.hooks.native.answers import Answers, Stream
from gateway_plugin.hooks.native.buffers import Buffers
from gateway_plugin.hooks.native.connection import Connection
from gateway_plugin.hooks.native.frames import ACK, NO_ERROR, PING, PREFACE, frame

PINGS_OF_ONE_READ = 15_000
"""More than a client may leave unread, and no more than one read of a socket brings."""


class Transport(asyncio.Transport):
    """Keeps what is written. unsent: bytes that the client has not read."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.unsent = 0
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.pieces.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


def answering(*ids: int) -> tuple[Answers, Transport, list[Stream]]:
    answers, transport = Answers(), Transport()
    answers.transport = transport
    for each in ids:
        answers.streams[each] = Stream(answers, each, "/")
    return answers, transport, list(answers.streams.values())


async def test_answers_of_one_turn_are_one_piece_in_their_order() -> None:
    _, transport, (first, second) = answering(1, 3)
    second.answer(b"\x88", b"second", b"\x88")
    first.answer(b"\x88", b"first", b"\x88")
    assert not transport.pieces
    await asyncio.sleep(0)
    (piece,) = transport.pieces
    assert piece.index(b"second") < piece.index(b"first")


async def test_what_waits_is_written_before_the_goodbye() -> None:
    answers, transport, (stream,) = answering(1)
    stream.answer(b"\x88", b"answer", b"\x88")
    answers.end(1, NO_ERROR, "over")
    (piece,) = transport.pieces
    assert b"answer" in piece
    assert piece.endswith(b"over")
    assert transport.is_closed
    await asyncio.sleep(0)
    assert len(transport.pieces) == 1


async def test_pings_that_come_in_one_read_are_answered_and_unread_answers_counted() -> None:
    connection = Connection(
        lambda _stream, _body: True,
        lambda _connection: None,
        max_body_bytes=1000,
        max_buffered_bytes=1000,
        max_streams=4,
        too_large=b"\x88",
        buffers=Buffers(1000, 0),
        is_proven=True,
    )
    transport = Transport()
    connection.connection_made(transport)
    pings = partial(connection.data_received, frame(PING, 0, 0, bytes(8)) * PINGS_OF_ONE_READ)
    connection.data_received(PREFACE)
    for _ in range(2):
        pings()
        await asyncio.sleep(0)
    assert b"".join(transport.pieces).count(frame(PING, ACK, 0, bytes(8))) == 2 * PINGS_OF_ONE_READ
    assert not transport.is_closed
    transport.unsent = 1
    pings()
    assert transport.is_closed
