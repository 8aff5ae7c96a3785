"""Recognises a database that is away, and makes the error for it."""

from typing import Final

from django.db import InterfaceError, OperationalError

from signalbox.program.errors import Unavailable

DATABASE_FAULTS: Final = (OperationalError, InterfaceError)
"""Exceptions that Django raises when the database is away; a bug of ours raises others."""


def database_away() -> Unavailable:
    """Our error in place of one of :data:`DATABASE_FAULTS`."""
    return Unavailable("The console cannot reach its database. Jobs do not depend on it.", retry_after_s=5.0)
