"""Where requests begin and end, and which heads have one meaning."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.front.framing import AT_BODY, AT_END, Framing, Refusal

GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"3;why=not\r\nhel\r\n2\r\nlo\r\n0\r\nX-Api-Key: evil\r\nHost: other\r\n\r\n"
)
OLD = b"GET / HTTP/1.0\r\n\r\n"
JAVA = (
    b"POST /v1/x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 5\r\nHost: x\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nX-A: 1\r\n\r\nhello"
)
PLAIN = (
    b"POST /v1/x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 5\r\nHost: x\r\nX-A: 1\r\n\r\nhello"
)
FRAMED = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


def framing() -> Framing:
    return Framing(most_bytes=4096, most_fields=20)


def feed(reader: Framing, piece: bytes) -> bytes:
    """What a server sees after all turns that a piece takes."""
    seen = reader.feed(piece)
    while reader.has_more:
        seen += reader.feed(b"")
    return seen


def requests(pieces: list[bytes]) -> list[bytes]:
    """What a server sees of each request, when it answers each at once."""
    reader, seen, now = framing(), [], b""
    for piece in pieces:
        now += feed(reader, piece)
        while reader.part is AT_END:
            seen.append(now)
            now = reader.next() + feed(reader, b"")
    assert not now
    assert reader.is_idle
    return seen


def whole(request: bytes) -> bytes:
    """A request with its chunks joined, whatever their number."""
    head, _, body = request.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return request
    data = b""
    while (size := int(body.partition(b"\r\n")[0], 16)) > 0:
        body = body.partition(b"\r\n")[2]
        data, body = data + body[:size], body[size + 2 :]
    assert body == b"0\r\n\r\n", "No trailers are seen."
    return head + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)


@given(
    st.lists(st.sampled_from([GET, POST, CHUNKED, OLD, JAVA]), min_size=1, max_size=5),
    st.lists(st.integers(0, 600), max_size=30),
)
def test_however_bytes_come_the_server_sees_the_same_requests(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(sent)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(places)]
    seen = [whole(request) for request in requests(pieces)]
    assert seen == [{CHUNKED: FRAMED, JAVA: PLAIN}.get(request, request) for request in sent]


@given(st.lists(st.integers(1, 4), max_size=200), st.data())
def test_chunks_of_any_size_carry_the_same_bytes(sizes: list[int], data: st.DataObject) -> None:
    body = b"".join(bytes([65 + i % 26]) * size for i, size in enumerate(sizes))
    sent = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    at = 0
    for size in sizes:
        sent += b"%x\r\n%b\r\n" % (size, body[at : at + size])
        at += size
    sent += b"0\r\n\r\n"
    cut = data.draw(st.integers(0, len(sent)))
    (seen,) = requests([sent[:cut], sent[cut:]])
    _, _, framed = whole(seen).partition(b"\r\n\r\n")
    assert framed == b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def test_what_follows_a_request_waits_until_it_is_answered() -> None:
    reader = framing()
    assert reader.feed(POST + GET + GET) == POST
    assert reader.feed(b"GET") == b""
    assert reader.next() == GET
    assert reader.next() == GET
    assert reader.next() == b""
    assert not reader.is_idle


def read(sent: bytes, step: int) -> None:
    """Feed so many bytes at a time."""
    reader = framing()
    for at in range(0, len(sent), step):
        feed(reader, sent[at : at + step])


def head(*fields: bytes, line: bytes = b"POST / HTTP/1.1") -> bytes:
    return b"\r\n".join([line, b"Host: x", *fields, b"", b""])


@pytest.mark.parametrize(
    ("status", "reason", "sent"),
    [
        (400, "http", head(b"Host: y")),
        (400, "http", head(b"hOST: x")),
        (400, "http", b"GET / HTTP/1.1\r\n\r\n"),
        (505, "http", head(line=b"GET / HTTP/2.0")),
        (505, "http", head(line=b"GET / HTTP/1.2")),
        (400, "http", head(line=b"GET / HTTP/11")),
        (400, "http", head(line=b"GET /")),
        (400, "http", head(line=b"GET  / HTTP/1.1")),
        (400, "http", head(line=b"GE(T / HTTP/1.1")),
        (501, "http", head(b"Transfer-Encoding: gzip, chunked")),
        (501, "http", head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")),
        (501, "http", head(b"Transfer-Encoding: identity")),
        (400, "http", head(b"Transfer-Encoding: chunked", b"Content-Length: 5")),
        (400, "http", head(b"Transfer-Encoding: chunked", line=b"POST / HTTP/1.0")),
        (400, "http", head(b"Content-Length: 5", b"Content-Length: 5")),
        (400, "http", head(b"Content-Length: +5")),
        (400, "http", head(b"Content-Length: 5, 5")),
        (400, "http", head(b"Content-Length:")),
        (400, "http", head(b"Content-Length: " + b"9" * 19)),
        (400, "http", head(b"Content-Length : 5")),
        (400, "http", head(b"X-A: 1", b" folded")),
        (400, "http", head(b"X-A: \x00")),
        (400, "http", head(b"X-A: 1\nX-B: 2")),
        (400, "http", head(b"X-A: 1\rX-B: 2")),
        (400, "http", head(b": 1")),
        (400, "http", head(b"no colon")),
        (400, "http", b"GET / HTTP/1.1\nHost: x\n\n"),
        (400, "http", b"\x16\x03\x01\x02\x00\x01"),
        (400, "http", CHUNKED.replace(b"3;why", b"-3;why")),
        (400, "http", CHUNKED.replace(b"3;why", b"2;why")),
        (400, "http", CHUNKED.replace(b"3;why", b"0x3;why")),
        (400, "http", CHUNKED.replace(b"3;why", b"3;" + b"y" * 5000)),
        (431, "fields", head(*[b"a: b"] * 20)),
        (431, "head", head(b"X-A: " + b"a" * 4096)),
        (431, "head", b"GET /" + b"a" * 4096),
        (431, "head", CHUNKED.replace(b"evil", b"a" * 4096)),
        (431, "head", CHUNKED.replace(b"X-Api-Key: evil\r\n", b"a: b\r\n" * 1000)),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_a_head_without_bound_or_with_two_meanings_is_refused(status: int, reason: str, sent: bytes, step: int) -> None:
    with pytest.raises(Refusal) as refused:
        read(sent, step)
    assert (refused.value.status, refused.value.reason.partition(":")[2]) == (status, reason)


def test_extensions_of_chunks_are_bounded_together() -> None:
    sent = head(b"Transfer-Encoding: chunked") + (b"1;" + b"x" * 100 + b"\r\na\r\n") * 1000
    with pytest.raises(Refusal, match="no data"):
        read(sent, 1000)


def test_what_is_taken_of_a_head() -> None:
    for sent in (
        head(*[b"a: b"] * 19),
        head(b"X-A: \xff\t", b"X-Empty:"),
        b"\r\n\r\n" + GET,
        head(line=b"GET /a%20b?c=%ff HTTP/1.1"),
    ):
        reader = framing()
        assert reader.feed(sent) == sent.lstrip(b"\r\n")
        assert reader.part is AT_END


@pytest.mark.parametrize("step", [1, 100_000])
def test_an_offer_of_another_protocol_is_ignored_but_for_a_websocket(step: int) -> None:
    websocket = head(b"Connection: keep-alive, Upgrade", b"uPGRADE:  WebSocket ", line=b"GET /ws HTTP/1.1")
    ignored = (
        head(b"Upgrade: h2c", b"Connection: Upgrade"),
        head(b"Upgrade: h2c, websocket", line=b"GET / HTTP/1.1"),
        head(b"Upgrade: websocket", b"Upgrade: websocket", line=b"GET / HTTP/1.1"),
        head(b"Upgrade: websocket", b"Transfer-Encoding: chunked", line=b"GET / HTTP/1.1") + b"0\r\n\r\n",
        head(b"Upgrade: websocket", b"Content-Length: 1", line=b"GET / HTTP/1.1") + b"x",
        head(b"Upgrade: websocket"),
    )
    for sent, may_upgrade in ((websocket, True), *((sent, False) for sent in ignored)):
        reader = framing()
        seen = b"".join(feed(reader, sent[at : at + step]) for at in range(0, len(sent), step))
        assert reader.may_upgrade == may_upgrade
        assert (b"\r\nupgrade:" in seen.lower()) == may_upgrade
        assert reader.part is AT_END


@pytest.mark.parametrize(("line", "is_old"), [(b"GET /watch HTTP/1.1", False), (b"GET /watch HTTP/1.0", True)])
@pytest.mark.parametrize("may_open", [True, False])
def test_a_listener_says_which_requests_may_become_websockets(line: bytes, is_old: bool, may_open: bool) -> None:
    asked: list[bytes] = []

    def judge(sent: bytes) -> bool:
        asked.append(sent)
        return may_open

    reader = Framing(most_bytes=4096, most_fields=20, may_open=judge)
    sent = head(b"Connection: Upgrade", b"Upgrade: websocket", line=line)
    seen = reader.feed(sent)
    assert asked == ([] if is_old else [sent])
    assert reader.may_upgrade == (may_open and not is_old)
    assert (b"\r\nUpgrade: websocket" in seen) == reader.may_upgrade


def test_a_body_that_waits_to_be_asked_for_is_known() -> None:
    for expect, is_waiting in (
        (b"Expect: 100-continue", True),
        (b"eXPECT:\t 100-Continue", True),
        (b"Expect: x", False),
        (b"Expect: 100-continue ", False),
        (b"Expect: 100-continue, x", False),
        (b"X-Expect: 100-continue", False),
    ):
        reader = framing()
        reader.feed(head(expect, b"Content-Length: 5"))
        assert reader.is_waiting == is_waiting
        assert reader.part is AT_BODY


@pytest.mark.parametrize("step", [5000, 1_000_000])
def test_one_turn_reads_so_many_chunks_and_no_more(step: int) -> None:
    reader = framing()
    reader.feed(head(b"Transfer-Encoding: chunked"))
    sent = b"1\r\na\r\n" * 20_000 + b"0\r\nX-A: 1\r\n\r\n" + GET
    turns = []
    for at in range(0, len(sent), step):
        turns.append(reader.feed(sent[at : at + step]))
        while reader.has_more:
            turns.append(reader.feed(b""))
    assert max(len(turn.partition(b"\r\n")[2]) for turn in turns) < 300
    assert reader.part is AT_END
    assert reader.body_bytes == 20_000
    assert reader.next() == GET
