"""Until when a deletion can be taken back, and what speaks against one."""

from collections.abc import Iterable
from typing import Final

from django.utils import timezone

from console.catalog.tombstones import Marked, undo_until
from console.jobs.models import OPEN, Job
from signalbox.program.errors import Conflict, NotFound
from signalbox.program.words import counted

_SHOWN: Final = 3
"""Jobs that a refusal names."""


def require_undoable(row: Marked, what: str) -> None:
    """Return for a row whose mark can be taken off now. what: its name in a sentence.

    Raises :class:`NotFound` where it is not deleted, and :class:`Conflict` where that is too long ago.
    """
    if row.deleted_at is None:
        raise NotFound(f"{what} is not deleted.")
    until = undo_until(row)
    if timezone.now() >= until:
        raise Conflict(
            f"The deletion of {what} could be undone until {until:%Y-%m-%d %H:%M:%S} UTC. Register the files anew,"
            " under other numbers."
        )


def require_no_open_jobs(names: Iterable[str], number: int | None = None) -> None:
    """Raise :class:`Conflict` where a job of these models, or of this version of the one, has not ended."""
    found = Job.objects.filter(state__in=OPEN, model__in=names)
    if number is not None:
        found = found.filter(version=number)
    if count := found.count():
        some = list(found.order_by("created_at").values_list("pk", flat=True)[:_SHOWN])
        more = " and others" if count > len(some) else ""
        raise Conflict(
            f"{counted(count, 'open job')} need it: {', '.join(some)}{more}. Wait for their end, or cancel them."
            if count > 1
            else f"An open job needs it: {some[0]}. Wait for its end, or cancel it."
        )
