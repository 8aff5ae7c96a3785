"""The parser of the NATS protocol: the same messages however the bytes are cut."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError

from signalbox.bus.jetstream import ApiError, header_fields, unix_time, write_refused
from signalbox.bus.transport.frames import FrameParser, parse_headers, status, status_text
from signalbox.bus.transport.interface import Handler
from signalbox.program.errors import Bug, QueueFull, StaleRevision, TooLarge, Unavailable

Got = tuple[bytes, bytes, bytes, bytes]


class Client:
    """What a parser calls."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.controls: list[Any] = []
        self.faults: list[Exception] = []
        self.handlers: dict[int, Handler] = {7: lambda *args: self.got.append(args)}

    def on_fault(self, error: Exception) -> None:
        self.faults.append(error)

    async def _process_ping(self) -> None:
        self.controls.append("PING")

    async def _process_pong(self) -> None:
        self.controls.append("PONG")

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.controls.append(info)

    async def _process_err(self, text: str) -> None:
        self.controls.append(text)


def frame(subject: bytes, reply: bytes, head: bytes, body: bytes) -> bytes:
    if head:
        sizes = b"%d %d" % (len(head), len(head) + len(body))
        return b"HMSG %b 7 %b%b\r\n%b%b\r\n" % (subject, reply + b" " if reply else b"", sizes, head, body)
    return b"MSG %b 7 %b%d\r\n%b\r\n" % (subject, reply + b" " if reply else b"", len(body), body)


def parser_of(client: Any) -> FrameParser:
    """A parser with as much of a connection as it needs."""
    return FrameParser(client)


TOKENS = st.text("abc.$", min_size=1, max_size=8).map(str.encode)
FRAMES = st.tuples(
    TOKENS,
    st.one_of(st.just(b""), TOKENS),
    st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0 503\r\n\r\n"]),
    st.binary(max_size=60),
)


@given(frames=st.lists(FRAMES, max_size=8), sizes=st.lists(st.integers(1, 40), min_size=1))
def test_any_cut_gives_the_same_messages(frames: list[Got], sizes: list[int]) -> None:
    stream = b"".join(frame(*each) + b"PING\r\n" for each in frames)
    client = Client()
    parser = parser_of(client)

    async def feed() -> None:
        start, turn = 0, 0
        while start < len(stream):
            size = sizes[turn % len(sizes)]
            await parser.parse(stream[start : start + size])
            start, turn = start + size, turn + 1

    asyncio.run(feed())
    assert client.got == frames
    assert client.controls == ["PING"] * len(frames)
    assert client.faults == []


async def test_control_lines_reach_the_client() -> None:
    client = Client()
    parser = parser_of(client)
    await parser.parse(b'+OK\r\nPONG\r\nINFO {"a":1}\r\n-ERR \'Permissions Violation for Publish to "X.y"\'\r\n')
    assert client.controls == ["PONG", {"a": 1}, "'Permissions Violation for Publish to \"X.y\"'"]


async def test_a_handler_that_fails_does_not_stop_the_parser() -> None:
    client = Client()
    kept = client.handlers[7]

    def fail(*args: bytes) -> None:
        raise ValueError(args)

    client.handlers[7] = fail
    parser = parser_of(client)
    await parser.parse(frame(b"a", b"", b"", b"1"))
    client.handlers[7] = kept
    await parser.parse(frame(b"a", b"", b"", b"2"))
    assert [body for *_, body in client.got] == [b"2"]
    assert len(client.faults) == 1


@pytest.mark.parametrize("line", [b"HELLO\r\n", b"MSG\r\n", b"MSG a x 1\r\na\r\n", b"ZORK\r\n", b"x" * 70_000])
async def test_an_unknown_line_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        await parser_of(Client()).parse(line)


def test_a_status_line_is_read_without_the_headers() -> None:
    head = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n"
    assert (status(head), status_text(head)) == (408, "Request Timeout")
    assert parse_headers(head) == {"Nats-Pending-Messages": "3"}
    assert status(b"NATS/1.0\r\nA: b\r\n\r\n") == 0
    assert status(b"") == 0


@given(st.dictionaries(st.text("abcXYZ-", min_size=1), st.text().filter(lambda t: t == t.strip())))
def test_headers_survive_the_way_or_are_refused(headers: dict[str, str]) -> None:
    if any(c in value for value in headers.values() for c in "\r\n"):
        with pytest.raises(Bug):
            header_fields(headers)
    else:
        try:
            encoded = header_fields(headers)
        except UnicodeEncodeError:
            return
        assert parse_headers(b"NATS/1.0\r\n" + encoded + b"\r\n") == headers


@pytest.mark.parametrize(
    ("error", "kind", "last"),
    [
        (ApiError(400, 10071, "wrong last sequence: 12"), StaleRevision, 12),
        (ApiError(400, 10164, "wrong last sequence"), StaleRevision, None),
        (ApiError(503, 10077, "maximum messages exceeded"), QueueFull, None),
        (ApiError(503, 10077, "maximum bytes exceeded"), QueueFull, None),
        (ApiError(400, 10002, "resource limits exceeded for account"), QueueFull, None),
        (ApiError(400, 10054, "message size exceeds maximum allowed"), TooLarge, None),
        (ApiError(503, 10023, "insufficient resources"), Unavailable, None),
        (ApiError(400, 10165, "invalid per-message TTL"), Bug, None),
    ],
)
def test_each_refusal_has_its_meaning(error: ApiError, kind: type[Exception], last: int | None) -> None:
    found = write_refused(error)
    assert type(found) is kind
    assert getattr(found, "last", None) == last


def test_a_timestamp_of_the_server_is_utc() -> None:
    assert unix_time("2026-11-21T08:06:56.311107175Z") == pytest.approx(1795248416.311107)
    assert unix_time("2026-11-21T08:06:56Z") == 1795248416
    assert unix_time("2026-11-21T08:06:56.5Z") == 1795248416.5
