"""Pages of the audit by keyset, newest first, with a bound on the rows that one request looks through."""

from datetime import datetime
from typing import Final, NamedTuple

from console.audit.models import AuditEntry
from console.audit.query import AuditFilter

SCAN: Final = 100_000
"""Most rows that one request looks through."""
_DISORDER: Final = 1000
"""Rows whose times may stand in another order than their ids: writers take their time before their turn."""


class AuditPage(NamedTuple):
    """entries: newest first. older: id that the next page begins below, 0 = there is none.

    searched_to: when the oldest row was written that was looked at, though the page is not full; None = all were.
    """

    entries: list[AuditEntry]
    older: int = 0
    searched_to: datetime | None = None


def page(asked: AuditFilter, *, before: int = 0, size: int = 50) -> AuditPage:
    """One page: the rows below id ``before``, or the newest."""
    low, high = _ends(asked, before)
    floor = max(low, high - SCAN)
    rows = AuditEntry.objects.filter(asked.condition, pk__lt=high, pk__gte=floor)
    if asked.since is not None:
        rows = rows.filter(at__gte=asked.since)
    if asked.until is not None:
        rows = rows.filter(at__lt=asked.until)
    found = list(rows[: size + 1])
    if len(found) > size:
        return AuditPage(found[:size], found[size - 1].pk)
    if floor > low:
        oldest = AuditEntry.objects.filter(pk__gte=floor).order_by("pk").values_list("at", flat=True)
        return AuditPage(found, floor, oldest.first())
    return AuditPage(found)


def _ends(asked: AuditFilter, before: int) -> tuple[int, int]:
    """Ids between which the asked time lies: the first of them, and the one after the last."""
    newest = AuditEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    low, high = 1, min(before or newest + 1, newest + 1)
    by_time = AuditEntry.objects.values_list("pk", flat=True)
    if asked.until is not None:
        last = by_time.filter(at__lt=asked.until).order_by("-at").first()
        high = min(high, last + _DISORDER if last is not None else 1)
    if asked.since is not None:
        first = by_time.filter(at__gte=asked.since).order_by("at").first()
        low = max(low, first - _DISORDER if first is not None else high)
    return low, max(low, high)
