"""Errors for what the database does not have, for one that is away, and work that goes on when it is back."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from channels.db import database_sync_to_async
from django.db import InterfaceError, OperationalError
from django.db.models import Model, QuerySet

from signalbox.program import log
from signalbox.program.errors import NotFound, Unavailable

M = TypeVar("M", bound=Model)

DATABASE_FAULTS: Final = (OperationalError, InterfaceError)
"""Exceptions that Django raises when the database is away; a bug of ours raises others."""


def database_away() -> Unavailable:
    """Our error in place of one of :data:`DATABASE_FAULTS`."""
    return Unavailable("The console cannot reach its database. Jobs do not depend on it.", retry_after_s=5.0)


def one_of(rows: QuerySet[M], missing: str) -> M:
    """The first of these rows. Raises :class:`NotFound` that says ``missing``."""
    row = rows.first()
    if row is None:
        raise NotFound(missing)
    return row


async def repeat(work: Callable[[], object], every_s: float, failed: str, *, thread_sensitive: bool = True) -> None:
    """Do work that reads or writes rows again and again, until cancelled. failed: the log's event where it raises."""
    while True:
        try:
            await database_sync_to_async(work, thread_sensitive=thread_sensitive)()
        except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
            log.exception(failed)
        await asyncio.sleep(every_s)
