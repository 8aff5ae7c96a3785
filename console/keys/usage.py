"""Stores what gateways report once a minute: when keys were last used, and calls and refusals by key and reason.

A report that is lost is told again only as far as that its keys are in use: the figures are those that were reported.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from channels.db import database_sync_to_async
from django.db import connection, transaction

from console.keys.models import ApiKey, KeyUse
from signalbox.bus.client import Bus, Message
from signalbox.program import log
from signalbox.wire import names
from signalbox.wire.messages import decode
from signalbox.wire.names import Header
from signalbox.wire.used import MOST_REASON, KeyCalls

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
KEPT_S: Final = {MINUTE_S: 3 * HOUR_S, HOUR_S: 2 * DAY_S, DAY_S: 32 * DAY_S}
"""How long the calls of a minute, an hour and a day (UTC) are kept."""
GROUP: Final = "console"
"""Of several controllers one stores a report."""
_AT_ONCE: Final = 500
_MOST_CALLS: Final = 2**31
"""Of one key in one report: no gateway answers more in a minute."""
_MOST_DELETED: Final = 5000
_decode = msgspec.json.Decoder(list[str]).decode
_Row = tuple[str, int, int, str, int]


async def keep_noted(bus: Bus) -> None:
    """Listen until cancelled."""
    subscription = await bus.subscribe(names.KEY_USE, receive, group=GROUP)
    try:
        await asyncio.Event().wait()
    finally:
        await subscription.close()


async def receive(message: Message) -> None:
    """Store what one gateway reports. One of a release before calls were counted reports the keys alone."""
    try:
        used = _decode(message.data)
        header = message.headers.get(Header.CALLS)
        counted = decode(KeyCalls, header) if header else KeyCalls(calls={}, refused={})
    except (msgspec.MsgspecError, UnicodeDecodeError):
        log.warning("keys.use_unreadable", size_bytes=len(message.data))
        return
    await database_sync_to_async(store)(used, counted, datetime.now(UTC))


def store(used: list[str], counted: KeyCalls, at: datetime) -> None:
    """Add a report up. at: when it came; its calls are those of the minute before."""
    for start in range(0, len(used), _AT_ONCE):
        with transaction.atomic():
            known = ApiKey.objects.filter(pk__in=used[start : start + _AT_ONCE])
            ids = set(known.values_list("pk", flat=True))
            known.update(last_used_at=at)
            _add(_rows(ids, counted, round(at.timestamp()) - MINUTE_S // 2))
    if used:
        forget(round(at.timestamp()))


def forget(now: int) -> None:
    """Delete what is kept no longer, some of it at a time. now: unix seconds."""
    for step_s, kept_s in KEPT_S.items():
        old = KeyUse.objects.filter(step_s=step_s, at__lt=now - kept_s).values_list("pk", flat=True)
        KeyUse.objects.filter(pk__in=list(old[:_MOST_DELETED])).delete()


def _rows(ids: Iterable[str], counted: KeyCalls, now: int) -> Iterator[_Row]:
    for kid in sorted(ids):  # in one order, so that two controllers do not wait for each other
        reasons: Mapping[str, int] = {"": counted.calls.get(kid, 0), **counted.refused.get(kid, {})}
        for step_s in KEPT_S:
            at = now - now % step_s
            for reason, calls in sorted(reasons.items()):
                if 0 < calls < _MOST_CALLS and "\0" not in reason:
                    yield kid, step_s, at, reason[:MOST_REASON], calls


def _add(rows: Iterable[_Row]) -> None:
    # Added in the database: two gateways report the same minute.
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO keys_keyuse (key_id, step_s, at, reason, calls) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (key_id, step_s, at, reason) DO UPDATE SET calls = keys_keyuse.calls + excluded.calls",
            list(rows),
        )
