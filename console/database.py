"""A database that is away: how it shows, and what is said of it."""

from typing import Final

from django.db import InterfaceError, OperationalError

from signalbox.program.errors import Unavailable

DATABASE_FAULTS: Final = (OperationalError, InterfaceError)
"""What Django raises when the database is away; a fault of ours raises others."""


def database_away() -> Unavailable:
    """What we say instead of one of :data:`DATABASE_FAULTS`."""
    return Unavailable("The console cannot reach its database. Jobs do not depend on it and go on.", retry_after_s=5.0)
