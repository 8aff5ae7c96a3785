"""JetStream's protocol: reads its answers, makes our errors of its refusals, encodes the header of a write. No I/O."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from signalbox.bus.transport.frames import parse_headers, status, status_text
from signalbox.program.errors import (
    Ambiguous,
    Bug,
    Misconfigured,
    NotFound,
    QueueFull,
    SignalboxError,
    StaleRevision,
    TooLarge,
    Unavailable,
)
from signalbox.wire.messages import Job, decode
from signalbox.wire.names import Header

_LAST_SEQUENCE: Final = re.compile(r"wrong last sequence: (\d+)")
_ACCOUNT_FULL: Final = 10002
"""All streams of the account together hold as much as it may."""
_ID_IN_PROCESS: Final = 10158
_LIMITS: Final = re.compile(r"maximum (messages|bytes)")

Reply = tuple[bytes, bytes]
"""Header block and body of an answer."""


class Stored(NamedTuple):
    """A message as a stream keeps it. ``time``: UTC unix seconds at which it was stored."""

    subject: str
    seq: int
    time: float
    headers: Mapping[str, str]
    data: bytes

    @property
    def job(self) -> Job:
        """The job in header ``Sb-Job``. Raises ``KeyError`` or :class:`msgspec.MsgspecError` if there is none."""
        return decode(Job, self.headers[Header.JOB])


class ApiError(msgspec.Struct):
    """The ``error`` of a JetStream answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct):
    """JetStream's answer to a write. ``count``: messages of an atomic batch."""

    seq: int = 0
    error: ApiError | None = None
    count: int = 0


decode_puback: Final = msgspec.json.Decoder(PubAck).decode


def header_fields(
    headers: Mapping[str, str] | None = None,
    expect: int | None = None,
    ttl_s: int | None = None,
    msg_id: str | None = None,
) -> bytes:
    """Encoded header lines, without the version line before and the empty line after them."""
    text = "" if expect is None else f"{Header.EXPECTED_LAST}: {expect}\r\n"
    count = 0 if expect is None else 1
    if ttl_s is not None:
        text += f"{Header.TTL}: {ttl_s}\r\n"
        count += 1
    if msg_id is not None:
        text += f"{Header.MSG_ID}: {msg_id}\r\n"
        count += 1
    if headers:
        for name, value in headers.items():
            text += f"{name}: {value}\r\n"
        count += len(headers)
    if text.count("\n") != count or text.count("\r") != count:
        raise Bug("A header holds a line break.")
    return text.encode()


def write_refused(error: ApiError) -> SignalboxError:
    """Our error for a write that JetStream refused: it was certainly not stored, but for one case.

    While a cluster is still agreeing on a first write with the same message id, a repeated one is told so: the first
    may be stored, or not.
    """
    facts: dict[str, Any] = {"err_code": error.err_code, "reason": error.description}
    if error.err_code == _ID_IN_PROCESS:
        return Ambiguous(retry_after_s=1.0, **facts)
    if error.err_code in {10071, 10164}:
        found = _LAST_SEQUENCE.search(error.description)
        return StaleRevision(int(found.group(1)) if found else None, **facts)
    if error.err_code == _ACCOUNT_FULL or (error.err_code == 10077 and _LIMITS.search(error.description)):
        return QueueFull(retry_after_s=1.0, **facts)
    if error.err_code == 10054:
        return TooLarge("The message is larger than its stream takes.", **facts)
    if error.code >= 500 or error.code == 0:
        return Unavailable(f"JetStream refused the write: {error.description}.", **facts)
    return Bug(f"JetStream refused the write: {error.description}.", **facts)


def stored_of(head: bytes, body: bytes) -> Stored:
    """The stored message in an answer to a direct get. Raises :class:`Bug` for a status other than found."""
    if status(head):
        raise Bug(f"Direct get: {status(head)} {status_text(head)}")
    headers = parse_headers(head)
    return Stored(
        headers.pop(Header.SUBJECT),
        int(headers.pop(Header.SEQUENCE)),
        unix_time(headers.pop(Header.TIME_STAMP)),
        headers,
        body,
    )


def unix_time(text: str) -> float:
    """UTC unix seconds of a timestamp of the server's (nanoseconds, ``Z``)."""
    return datetime.fromisoformat(text[:26].rstrip("Z") + "Z").timestamp()


def api_refused(error: ApiError, subject: str) -> SignalboxError:
    """Our error for a JetStream API request that was refused."""
    facts: dict[str, Any] = {"err_code": error.err_code, "subject": subject}
    if error.code == 404:
        return NotFound(f"NATS: {error.description}.", **facts)
    if error.code >= 500:
        return Unavailable(f"JetStream: {error.description}.", **facts)
    return Misconfigured(f"NATS refuses {subject}: {error.description}.", **facts)


def unanswered(subject: str, reason: str, *, is_write: bool) -> SignalboxError:
    """Our error for a lost answer: a read has done nothing, a write perhaps."""
    if is_write:
        return Ambiguous(retry_after_s=1.0, subject=subject, reason=reason)
    return Unavailable(f"NATS did not answer: {reason}.", retry_after_s=1.0, subject=subject)
