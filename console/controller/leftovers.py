"""Forgets what operators decided about models that are gone for good: pauses, pins and loads ahead of need.

While a deletion can be undone they stay, as the model does. A model that takes the name later has none of them.
"""

from django.db import transaction
from django.db.models import Exists, OuterRef

from console.catalog.models import ServedModel
from console.catalog.tombstones import due_before
from console.database import repeat
from console.fleet.models import DesiredState
from console.fleet.services import desired_key
from console.outbox.services import post_removals
from signalbox.program import log
from signalbox.wire.names import Bucket

_OF_MODELS = (DesiredState.MODEL, DesiredState.PREFETCH, DesiredState.PIN)


async def keep_forgotten(every_s: float) -> None:
    """Until cancelled."""
    await repeat(forget, every_s, "leftovers.not_forgotten")


def forget() -> None:
    """Once. Idempotent."""
    same = ServedModel.with_deleted.filter(name=OuterRef("name"), created_at__lte=OuterRef("updated_at"))
    meant = same.exclude(deleted_at__lte=due_before())
    with transaction.atomic():
        left = DesiredState.objects.select_for_update().filter(~Exists(meant), kind__in=_OF_MODELS)
        found = {one.pk: (desired_key(one.kind, one.name), one.name) for one in left}
        if found:
            DesiredState.objects.filter(pk__in=found).delete()
            post_removals(Bucket.DESIRED, found.values())
            log.info("leftovers.forgotten", keys=[key for key, _ in found.values()][:10], count=len(found))
