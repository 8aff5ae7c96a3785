"""What a stream stores, what its headers say, and how the server words its answers."""

import base64
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

NANO: Final = 1_000_000_000
encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(dict[str, Any]).decode

EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence"
MSG_ID: Final = "Nats-Msg-Id"
ROLLUP: Final = "Nats-Rollup"
TTL: Final = "Nats-TTL"
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
MARKER_REASON: Final = "Nats-Marker-Reason"

_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|us|µs|ns|s)")
_UNITS: Final = {"h": 3600 * NANO, "m": 60 * NANO, "s": NANO, "ms": 1_000_000, "us": 1000, "µs": 1000, "ns": 1}


class Msg:
    """A stored message. ts, expires: UTC unix nanoseconds (expires 0 = never). at: time of the loop when stored."""

    __slots__ = ("at", "data", "expires", "head", "seq", "size", "subject", "ts")

    def __init__(self, seq: int, ts: int, subject: str, head: bytes, data: bytes, expires: int, at: float) -> None:
        self.seq, self.ts, self.subject, self.head, self.data = seq, ts, subject, head, data
        self.expires, self.at = expires, at
        # What the server's file store counts: 22 bytes and a checksum of 8 around it.
        self.size = 30 + len(subject) + len(data) + (len(head) + 4 if head else 0)

    @property
    def is_marker(self) -> bool:
        """Whether it says that its subject is gone: the server makes no marker when such a one expires."""
        return b"Nats-Marker-Reason:" in self.head or b"KV-Operation: PURGE" in self.head

    def as_json(self) -> dict[str, Any]:
        """As ``STREAM.MSG.GET`` answers it."""
        found: dict[str, Any] = {"subject": self.subject, "seq": self.seq, "time": stamp(self.ts)}
        if self.head:
            found["hdrs"] = base64.b64encode(self.head).decode()
        if self.data:
            found["data"] = base64.b64encode(self.data).decode()
        return found


class Refusal(Exception):
    """The server's ``error``: HTTP-like code, number, words."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code, self.err_code, self.description = code, err_code, description

    def as_json(self) -> dict[str, Any]:
        """As answers carry it."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


def server_headers(head: bytes) -> dict[str, str]:
    """The headers of a block that mean something to the server: those that begin with ``Nats-``."""
    found: dict[str, str] = {}
    if b"\r\nNats-" in head:
        for line in head.split(b"\r\n"):
            if line[:5] == b"Nats-":
                name, _, value = line.partition(b":")
                found.setdefault(name.decode(), value.decode().strip())
    return found


def ttl_ns(text: str) -> int:
    """Lifetime that ``Nats-TTL`` asks for, 0 = none. Raises ``ValueError``."""
    if not text:
        return 0
    if text.isdigit():
        return int(text) * NANO
    total, end = 0.0, 0
    for found in _DURATION.finditer(text):
        if found.start() != end:
            break
        total += float(found.group(1)) * _UNITS[found.group(2)]
        end = found.end()
    if end != len(text) or total < NANO:
        raise ValueError(text)
    return int(total // NANO) * NANO


def stamp(ts: int) -> str:
    """RFC 3339 of UTC unix nanoseconds."""
    second, rest = divmod(ts, NANO)
    return f"{_whole(second)}.{rest:09d}Z"


@lru_cache(maxsize=256)
def _whole(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def status_block(code: int, text: str, **fields: object) -> bytes:
    """A header block that is a status and nothing else; ``_`` in names becomes ``-``."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0 {code} {text}\r\n{lines}\r\n".encode()


def with_headers(head: bytes, lines: str) -> bytes:
    """A header block with further lines at its end."""
    return (head[:-2] if head else b"NATS/1.0\r\n") + lines.encode() + b"\r\n"
