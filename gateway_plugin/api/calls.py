"""A call of a gRPC method as the dialects see it, whatever server it came through."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from signalbox.wire.messages import ApiKey


class GrpcCall(NamedTuple):
    """One unary call of a caller whose key is good.

    headers: its metadata by Go's canonical names (``Traceparent``). body: the one message, within the bound of sizes.
    timeout_s: until the caller's deadline; None where it set none.
    """

    key: ApiKey
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float | None = None


class GrpcReply(NamedTuple):
    """The reply to one. headers: its initial metadata, such as ``job_headers``."""

    message: bytes
    headers: Mapping[str, str] = {}


Method = Callable[[GrpcCall], Awaitable[GrpcReply]]
"""Raises errors of ours."""
