"""How long selections are kept, with what came of each of their jobs."""

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from console.selections.models import Selection
from console.selections.services import forget

KEPT: Final = timedelta(days=30)
CHOSEN_FOR: Final = timedelta(hours=1)
"""For somebody to start it."""
MOST_KEPT: Final = 200
MOST_ITEMS: Final = 1_000_000
"""Of all selections that are kept."""


def forget_old(now: datetime) -> int:
    """Delete what is too old, and the oldest beyond the bounds; one that waits or runs stays. Returns how many."""
    old, items = [], 0
    for number, one in enumerate(Selection.objects.order_by("-as_of", "-pk")):
        items += one.total
        is_old = one.as_of < now - (CHOSEN_FOR if one.state == Selection.CHOSEN else KEPT)
        if not one.is_open and (is_old or number >= MOST_KEPT or items > MOST_ITEMS):
            old.append(one.pk)
    for selection_id in old:
        with transaction.atomic():
            forget([selection_id])
    return len(old)
