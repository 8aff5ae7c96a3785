"""What the board asks of the database: decisions that are not published, lost data, repositories that cannot be listed,
and how far the projector is."""

from collections.abc import Callable
from typing import Final, TypeVar

from channels.db import database_sync_to_async
from django.db import Error
from django.db.models import Count, Min
from django.utils import timezone

from console.board.rows import Alarm
from console.keys.models import UnknownKey
from console.outbox import services as outbox
from console.outbox.models import OutboxEntry
from console.projector import damage
from console.projector.store import read_cursor
from console.repositories.models import Listing
from signalbox.program import log
from signalbox.program.words import counted
from signalbox.wire.names import Bucket

T = TypeVar("T")
SHOWN: Final = 8
"""Alarms shown one by one; any further ones are counted in one alarm."""


async def unpublished() -> dict[str, Alarm] | None:
    """An alarm for each decision that waits, each damage and each repository in trouble, by key; None where the
    database does not answer."""
    return await _asked(_alarms)


async def projected() -> int | None:
    """Last sequence of STATE that the projector has put into the database; None where that does not answer."""
    return await _asked(lambda: read_cursor().seq)


async def _asked(ask: Callable[[], T]) -> T | None:
    try:
        # Closes what a database that went away left behind; Django's own asynchronous calls do not.
        found: T = await database_sync_to_async(ask)()
    except Error as error:
        log.warning("live.database_unreachable", reason=type(error).__name__)
        return None
    return found


def _alarms() -> dict[str, Alarm]:
    waiting = outbox.overdue()
    found = {f"outbox:{entry.bucket}:{entry.key}": _alarm(entry) for entry in waiting[:SHOWN]}
    if rest := waiting[SHOWN:]:
        text = counted(len(rest), "more decision is", "more decisions are") + " not published to the fleet."
        since = rest[0].created_at.timestamp()
        found["outbox:more"] = Alarm("error", text, since, "/models")
    return found | _damaged() | _unknown_keys() | _repositories()


def _damaged() -> dict[str, Alarm]:
    """An alarm for each stream that lost data, for a day, and one for the accepted jobs that ended because of it."""
    found = {}
    for one in damage.standing():
        text = f"NATS lost data: stream {one.stream} {one.what}."
        if one.results:
            text += f" The results of up to {counted(one.results, 'ended job')} are gone."
        found[f"damage:{one.stream}"] = Alarm("error", text, one.at.timestamp(), "/jobs")
    if count := damage.lost_jobs():
        lost = counted(count, "accepted job was", "accepted jobs were")
        text = f"{lost} lost within a day: NATS no longer held them or their inputs. They ended as input_lost."
        since = (timezone.now() - damage.SHOWN).timestamp()
        found["damage:jobs"] = Alarm("error", text, since, "/jobs?q=error:input_lost")
    return found


def _unknown_keys() -> dict[str, Alarm]:
    """An alarm where gateways accept keys that this database does not know."""
    unknown = UnknownKey.objects.aggregate(count=Count("pk"), since=Min("seen_at"))
    count = unknown["count"]
    if not count:
        return {}
    keys = counted(count, "API key is", "API keys are")
    text = f"{keys} in force that this console does not know: adopt or revoke."
    return {"keys:unknown": Alarm("warning", text, unknown["since"].timestamp(), "/keys")}


def _repositories() -> dict[str, Alarm]:
    """An alarm for each repository whose last listing failed, or is in doubt: nothing new is served, or withdrawn."""
    troubled = Listing.objects.filter(repository__is_noticed=True).exclude(error="", alarm="")
    found = {}
    rows = troubled.order_by("repository__name").values_list("repository__name", "error", "alarm")
    for name, error, alarm in rows[:SHOWN]:
        text = f"Repository {name}: {error or alarm}"
        found[f"repository:{name}"] = Alarm("warning", text, href=f"/repositories/{name}")
    if (rest := troubled.count() - SHOWN) > 0:
        text = counted(rest, "more repository is", "more repositories are") + " in trouble."
        found["repository:"] = Alarm("warning", text, href="/repositories")
    return found


def _alarm(entry: OutboxEntry) -> Alarm:
    what, href = f"An operator's {entry.kind} of {entry.key}", "/"
    if entry.bucket == Bucket.MODELS:
        what, href = f"Model {entry.subject_name}", f"/models/{entry.subject_name}"
    elif entry.bucket == Bucket.WEBHOOKS:
        what, href = f"Webhook {entry.key}", f"/results/webhooks/{entry.key}"
    elif entry.bucket == Bucket.HOOK_SECRETS:
        what, href = f"The secret of webhook {entry.key.partition('.')[0]}", "/results/webhooks"
    elif entry.bucket == Bucket.SUBSCRIPTIONS:
        what, href = f"Subscription {entry.key}", "/results"
    elif entry.bucket == Bucket.QUEUES:
        what, href = f"Queue {entry.subject_name}", f"/queues/{entry.subject_name}"
    elif entry.bucket == Bucket.KEYS:
        what, href = f"API key {entry.key}", f"/keys/{entry.key}"
    text = f"{what} is not published to the fleet: {outbox.why_waiting(entry)}"
    return Alarm("error", text, entry.created_at.timestamp(), href)
