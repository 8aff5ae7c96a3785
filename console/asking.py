"""Asks NATS, from a request's thread, for what the database does not have."""

import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from asgiref.sync import async_to_sync
from django.conf import settings

from signalbox.bus.client import Bus, Stored
from signalbox.program.errors import Unavailable
from signalbox.wire import names
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Doc, decode
from signalbox.wire.names import Bucket

_WAIT_S: Final = 2.0
_readers: Final = threading.BoundedSemaphore(4)
"""Each reader may hold a page of dead letters, one whole input, or the files of a version."""
T = TypeVar("T")
D = TypeVar("D", bound=Doc)


def ask(what: str, act: Callable[[Bus], Awaitable[T]]) -> T:
    """What ``act`` finds over a connection of its own. what: the name of the connection.

    Raises :class:`Unavailable` without NATS, and while too many ask at once, and whatever ``act`` raises.
    """

    async def asked() -> T:
        async with await Bus.connect(settings.CONSOLE, role="console", name=what) as bus:
            return await act(bus)

    if not _readers.acquire(timeout=_WAIT_S):
        raise Unavailable(f"Too many requests read {what} at once.", retry_after_s=1.0)
    try:
        return async_to_sync(asked)()
    finally:
        _readers.release()


async def documents(bus: Bus, bucket: Bucket, type_: type[D]) -> dict[str, D]:
    """All documents of a bucket that this release reads, by key."""
    prefix = names.key(bucket, "")
    found = {}
    for stored in await bus.list_latest(bucket.stream, [f"{prefix}>"]):
        document = decoded(type_, stored)
        if document is not None:
            found[stored.subject.removeprefix(prefix)] = document
    return found


def decoded(type_: type[D], stored: Stored) -> D | None:
    """The document; None where it was removed, or another release wrote it."""
    if is_removal(stored.headers) or not stored.data:
        return None
    try:
        return decode(type_, stored.data)
    except msgspec.MsgspecError:
        return None
