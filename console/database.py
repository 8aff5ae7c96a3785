"""Errors for what the database does not have, and for one that is away."""

from typing import Final, TypeVar

from django.db import InterfaceError, OperationalError
from django.db.models import Model, QuerySet

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
