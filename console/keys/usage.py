"""Stores when keys were last used, as gateways report once a minute.

A sample. What is lost is told again a minute later if the key is still in use.
"""

import asyncio
from datetime import UTC, datetime

import msgspec
from channels.db import database_sync_to_async

from console.keys.models import ApiKey
from signalbox.bus.client import Bus, Message
from signalbox.program import log
from signalbox.wire import names

_decode = msgspec.json.Decoder(list[str]).decode


async def keep_noted(bus: Bus) -> None:
    """Listen until cancelled."""
    subscription = await bus.subscribe(names.KEY_USE, receive)
    try:
        await asyncio.Event().wait()
    finally:
        await subscription.close()


async def receive(message: Message) -> None:
    """Store what one gateway reports."""
    try:
        used = _decode(message.data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        log.warning("keys.use_unreadable", size_bytes=len(message.data))
        return
    await database_sync_to_async(_note)(used, datetime.now(UTC))


def _note(used: list[str], at: datetime) -> None:
    for start in range(0, len(used), 500):
        ApiKey.objects.filter(pk__in=used[start : start + 500]).update(last_used_at=at)
