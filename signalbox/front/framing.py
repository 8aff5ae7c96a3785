"""Finds where a request of HTTP/1.1 begins and ends, and what of it a server may see. Pure; bytes in, bytes out.

A server behind this reads one request at a time: a head within its bounds that has one meaning, then as many
bytes of body as belong to it. Trailers are dropped, and a chunked body is framed anew, so that the server and
this module agree on the end of a request. An offer of another protocol than a websocket (``Upgrade: h2c``, as Java's
HttpClient makes with each request) is taken out, which ignores it: a parser that sees one reads no body. Sources:
RFC 9112; RFC 9110, 7.8.
"""

import re
from collections.abc import Callable
from typing import Final

_TOKEN: Final = rb"[!#-'*+\-.0-9A-Z^_`a-z|~]++"
_HEAD: Final = re.compile(
    rb"%b [^\x00-\x20\x7f]++ HTTP/1\.[01]\r\n(?:%b:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*\r\n" % (_TOKEN, _TOKEN)
)
_OTHER_VERSION: Final = re.compile(rb"%b [^\x00-\x20\x7f]++ HTTP/(?!1\.[01]\r)\d\.\d\r\n" % _TOKEN)
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*+([^\r]*?)[ \t]*(?=\r\n)")
_CODING: Final = re.compile(rb"\r\ntransfer-encoding:[ \t]*+([^\r]*?)[ \t]*(?=\r\n)")
_ASKING: Final = re.compile(rb"\r\nexpect:[ \t]*+100-continue\r\n")
"""The exact header that uvicorn answers with 100; it ignores any other expectation."""
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,15}")
_OFFER: Final = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r]*+", re.IGNORECASE)
_WEBSOCKET: Final = re.compile(rb"\r\nupgrade:[ \t]*+websocket[ \t]*+\r\n")
_END: Final = b"\r\n\r\n"
_MOST_DIGITS: Final = 18
_LONGEST_CHUNK_LINE: Final = 4096
_EXCESS: Final = 16 * 1024
"""Bytes of chunk extensions beyond 16 and twice its data for each chunk, as Go counts them."""
_MOST_LINES: Final = 512
"""Most lines of chunks and trailers read in one turn: many connections may send one-byte chunks, and share one loop."""
AT_HEAD: Final = "head"
AT_BODY: Final = "body"
AT_CHUNK_LINE: Final = "chunk line"
AT_CHUNK: Final = "chunk"
AT_CHUNK_END: Final = "chunk end"
AT_TRAILERS: Final = "trailers"
AT_END: Final = "end"
"""What is expected next on a connection; no members of an enum, which are looked up slowly in Python 3.11."""


class Refusal(Exception):
    """A request is refused. status: of HTTP. reason: for metrics. text: cause and mend, for the client."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text


class Framing:
    """The requests of one connection, one after the other.

    part: what is expected next; AT_END: the request is whole, and what follows it is held until :meth:`next`.
    held: bytes that were not handed on. body_bytes: of the body of this request, so far. is_waiting: the client
    sends its body when it is told to (``Expect: 100-continue``). may_upgrade: it asks for a websocket, or a tunnel.
    is_old: it speaks HTTP/1.0. has_more: what is held can be read on at once, by feeding nothing; one turn reads a
    bounded number of chunks.
    """

    __slots__ = (
        "_excess",
        "_left",
        "_may_open",
        "_most_bytes",
        "_most_fields",
        "_trailer_bytes",
        "body_bytes",
        "has_more",
        "held",
        "is_old",
        "is_waiting",
        "may_upgrade",
        "part",
    )

    def __init__(self, *, most_bytes: int, most_fields: int, may_open: Callable[[bytes], bool] | None = None) -> None:
        """most_bytes, most_fields: of a head. may_open: whether a request may become a websocket, by its head; None =
        any that asks."""
        self._most_bytes = most_bytes
        self._most_fields = most_fields
        self._may_open = may_open
        self.held = bytearray()
        self._begin()

    def _begin(self) -> None:
        self.part: str = AT_HEAD
        self.body_bytes = 0
        self.has_more = self.is_old = self.is_waiting = self.may_upgrade = False
        self._left = self._excess = self._trailer_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has come."""
        return self.part is AT_HEAD and not self.held

    def feed(self, data: bytes) -> bytes:
        """The bytes of ``data`` and of what is held that the server may see now. Raises :class:`Refusal`."""
        part = self.part
        if part is AT_HEAD:
            return self._head(data)
        if part is AT_END:
            self.held += data
            return b""
        if part is AT_BODY:
            return self._body(data)
        return self._chunks(data)

    def next(self) -> bytes:
        """Begin the next request with what is held."""
        held = bytes(self.held)
        self.held.clear()
        self._begin()
        return self._head(held) if held else b""

    def _head(self, data: bytes) -> bytes:
        held = self.held
        if held:
            searched = max(0, len(held) - len(_END) + 1)
            held += data
            end = held.find(_END, searched)
            if end >= 0:
                data = bytes(held)
                held.clear()
        else:
            data = data.lstrip(b"\r\n") if data[:1] in b"\r\n" else data
            end = data.find(_END)
            if end < 0:
                held += data
        if end < 0:
            self._check_open(held)
            return b""
        size = end + len(_END)
        if size > self._most_bytes:
            raise self._head_too_long()
        sent = data[:size]
        head = self._read_head(sent)
        if self.part is AT_END:
            held += data[size:]
            return head
        if len(data) == size:
            return head
        if head is sent and self.part is AT_BODY and len(data) - size <= self._left:
            self._count(len(data) - size)
            return data
        return head + self.feed(data[size:])

    def _check_open(self, held: bytearray) -> None:
        """Refuse early a head that can no longer become acceptable."""
        if len(held) > self._most_bytes:
            raise self._head_too_long()
        line_end = held.find(b"\n")
        if held and (held[0] <= 0x20 or held[0] >= 0x7F or (line_end >= 0 and held[line_end - 1] != 0x0D)):
            raise _malformed("the request line is no HTTP")

    def _head_too_long(self) -> Refusal:
        return Refusal(
            431,
            "too_large:head",
            f"The head of a request may have {self._most_bytes} bytes; send less in its header fields.",
        )

    def _read_head(self, head: bytes) -> bytes:
        """Find out what follows the head. Returns what of it the server may see.

        Raises :class:`Refusal` unless it has one meaning.
        """
        if head.count(b"\r\n") - 2 > self._most_fields:
            raise Refusal(431, "too_large:fields", f"A request may have {self._most_fields} header fields; send fewer.")
        if not _HEAD.fullmatch(head):
            if _OTHER_VERSION.match(head):
                raise Refusal(505, "invalid_request:http", "HTTP/1.1 is spoken here; use that.")
            raise _malformed("the request line or a header field is no HTTP")
        line_end = head.index(b"\r\n")
        self.is_old = head[line_end - 1] == 0x30
        fields = head[line_end:].lower()
        hosts = fields.count(b"\r\nhost:")
        if hosts > 1:
            raise _malformed("too many Host headers")
        if not hosts and not self.is_old:
            raise _malformed("missing required Host header")
        self.is_waiting = b"\r\nexpect:" in fields and _ASKING.search(fields) is not None
        if b"\r\ntransfer-encoding:" in fields:
            self._read_coding(fields)
        else:
            self._left = _content_length(fields) if b"\r\ncontent-length:" in fields else 0
            self.part = AT_BODY if self._left else AT_END
        self.may_upgrade = head.startswith(b"CONNECT ")
        offers = fields.count(b"\r\nupgrade:")
        if not offers:
            return head
        if offers == 1 and self._is_of_websocket(head, fields):
            self.may_upgrade = True
            return head
        return _OFFER.sub(b"", head)

    def _is_of_websocket(self, head: bytes, fields: bytes) -> bool:
        if self.is_old or self.part is not AT_END or not head.startswith(b"GET ") or not _WEBSOCKET.search(fields):
            return False
        return self._may_open is None or self._may_open(head)

    def _read_coding(self, fields: bytes) -> None:
        if self.is_old or b"\r\ncontent-length:" in fields:
            raise _malformed("Transfer-Encoding with HTTP/1.0 or beside Content-Length")
        if _CODING.findall(fields) != [b"chunked"]:
            raise Refusal(
                501,
                "invalid_request:http",
                "Of transfer codings, chunked alone is known here; compress with Content-Encoding.",
            )
        self.part = AT_CHUNK_LINE

    def _body(self, data: bytes) -> bytes:
        if len(data) > self._left:
            self.held += data[self._left :]
            data = data[: self._left]
        self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        """Count ``size`` more bytes of a body of known length."""
        self.body_bytes += size
        self._left -= size
        if not self._left:
            self.part = AT_END

    def _chunks(self, data: bytes) -> bytes:
        """The data of the next chunks as one chunk of our own."""
        held = self.held
        if not held:
            at, found = self._read_chunks(data)
            held += data[at:]
        else:
            held += data
            at, found = self._read_chunks(held)
            del held[:at]  # moves its start only, however often
        body = b"".join(found)
        self.body_bytes += len(body)
        framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return framed + b"0\r\n\r\n" if self.part is AT_END else framed

    def _read_chunks(self, data: bytes | bytearray) -> tuple[int, list[bytes | bytearray]]:
        """The number of bytes of ``data`` that were read, and the chunks' own data in them."""
        found: list[bytes | bytearray] = []
        at = lines = 0
        self.has_more = False
        while at < len(data) and self.part is not AT_END:
            if self.part is AT_CHUNK:
                piece = data[at : at + self._left]
                found.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self.part = AT_CHUNK_END
                continue
            if lines == _MOST_LINES:
                self.has_more = True
                break
            lines += 1
            end = data.find(b"\r\n", at)
            if (len(data) if end < 0 else end) - at > _LONGEST_CHUNK_LINE:
                raise self._line_too_long()
            if end < 0:
                break
            self._line(data[at:end])
            at = end + 2
        return at, found

    def _line_too_long(self) -> Refusal:
        if self.part is AT_TRAILERS:
            return self._head_too_long()
        return _malformed("a line of a chunked body is too long")

    def _line(self, line: bytes | bytearray) -> None:
        """Read one line between the chunks."""
        if self.part is AT_CHUNK_END:
            if line:
                raise _malformed("a chunk is longer than it says")
            self.part = AT_CHUNK_LINE
        elif self.part is AT_CHUNK_LINE:
            size = line.partition(b";")[0].rstrip(b" \t")
            if not _CHUNK_SIZE.fullmatch(size):
                raise _malformed("a chunk does not say its size")
            self._left = int(size, 16)
            self._excess = max(0, self._excess + len(line) + 2 - 16 - 2 * self._left)
            if self._excess > _EXCESS:
                raise _malformed("a chunked body contains too much that is no data")
            self.part = AT_CHUNK if self._left else AT_TRAILERS
        elif line:
            self._trailer_bytes += len(line) + 2
            if self._trailer_bytes > self._most_bytes:
                raise self._head_too_long()
        else:
            self.part = AT_END


def _content_length(fields: bytes) -> int:
    sizes = _LENGTH.findall(fields)
    if len(sizes) != 1 or not sizes[0].isdigit() or len(sizes[0]) > _MOST_DIGITS:
        raise _malformed("Content-Length is no length, or is said twice")
    return int(sizes[0])


def _malformed(why: str) -> Refusal:
    return Refusal(400, "invalid_request:http", f"400 Bad Request: {why}")
