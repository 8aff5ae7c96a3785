"""A call of a gRPC method as the dialects see it, whatever server it came through."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from signalbox.wire.keydocs import ApiKey


def _hold_nothing(_size_bytes: int) -> None: ...


class GrpcCall(NamedTuple):
    """One unary call of a caller whose key is good.

    headers: its metadata by Go's canonical names (``Traceparent``). body: the one message, within the bound of sizes.
    timeout_s: until the caller's deadline; None where it set none. hold: called with the bytes that a method keeps
    beside the body; they count as the body does until the call ends, and what it raises is the answer.
    """

    key: ApiKey
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float | None = None
    hold: Callable[[int], None] = _hold_nothing


class GrpcReply(NamedTuple):
    """The reply to one. headers: its initial metadata, such as ``job_headers``."""

    message: bytes
    headers: Mapping[str, str] = {}


Method = Callable[[GrpcCall], Awaitable[GrpcReply]]
"""Raises errors of ours."""
