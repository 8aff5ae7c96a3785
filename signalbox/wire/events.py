"""Reads changes of a bucket: republished (``evt.kv.…``), kept in ``EVENTS``, or read from the bucket itself."""

from collections.abc import Mapping

from signalbox.wire.names import Header


def is_removal(headers: Mapping[str, str]) -> bool:
    """Whether a message in a bucket says that its key is gone: deleted, purged or expired."""
    return Header.MARKER_REASON in headers or Header.KV_OPERATION in headers
