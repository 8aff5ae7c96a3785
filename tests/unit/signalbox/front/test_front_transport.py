"""What a server writes through its gate, as the connection sees it."""

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest

from signalbox.front.gate import Gate
from signalbox.front.transport import GatedTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """Keeps what each call sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self.sent.append(b"EOF")


class OpenGate:
    """A gate that lets everything pass."""

    is_closing = False

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def wrote(self, size_bytes: int) -> None:
        pass

    def close(self) -> None:
        self._wire.sent.append(b"closed")


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def outward(wire: Wire) -> GatedTransport:
    return GatedTransport(cast("Gate", OpenGate(wire)), wire)


def test_head_and_body_of_an_answer_are_sent_together(outward: GatedTransport, wire: Wire) -> None:
    for _ in range(2):
        outward.expect_head()
        outward.write(HEAD)
        outward.write(b"bo")
        outward.write(b"dy")
        outward.release()
    assert wire.sent == [HEAD + b"bo", b"dy"] * 2


def test_head_of_a_stream_goes_at_once(outward: GatedTransport, wire: Wire) -> None:
    outward.expect_head()
    outward.write(STREAM)
    assert wire.sent == [STREAM]


def test_head_without_a_body_is_not_kept(outward: GatedTransport, wire: Wire) -> None:
    outward.expect_head()
    outward.write(HEAD)
    outward.release()
    assert wire.sent == [HEAD]


def test_head_is_sent_before_the_end(outward: GatedTransport, wire: Wire) -> None:
    outward.expect_head()
    outward.write(HEAD)
    outward.close()
    outward.expect_head()
    outward.write(HEAD)
    outward.write_eof()
    assert wire.sent == [HEAD, b"closed", HEAD, b"EOF"]
