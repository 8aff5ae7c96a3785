"""One controller of several lists repositories, and one scales models: who holds an advisory lock of PostgreSQL.

The lock ends with its connection, so a controller that dies or loses the database makes room for another. Two that list
at once for a moment do no harm: registrations are idempotent. SQLite has one controller.
"""

import threading
from contextlib import suppress
from typing import Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from console.database import DATABASE_FAULTS
from signalbox.program import log

LISTING: Final = 0x5B_4E_07_1C_E0
SCALING: Final = 0x5B_4E_07_1C_E1
"""Any numbers that no other program takes in this database: what is led."""


class Leadership:
    """Asked before each round, by whichever thread. of: what is led, :data:`LISTING` or :data:`SCALING`."""

    def __init__(self, of: int = LISTING) -> None:
        self._lock = of
        self._connection: BaseDatabaseWrapper | None = None
        self._turn = threading.Lock()
        self._is_over = False

    def is_ours(self) -> bool:
        """Whether this program leads now; takes the lock where nobody has it. Raises :data:`DATABASE_FAULTS`."""
        with self._turn:
            if self._is_over or connections["default"].vendor != "postgresql":
                return not self._is_over
            was_ours = self._connection is not None
            try:
                is_ours = self._holds()
            except DATABASE_FAULTS:
                self._close()
                raise
        if is_ours != was_ours:
            what = "noticing" if self._lock == LISTING else "scaling"
            log.info(f"{what}.leads" if is_ours else f"{what}.follows")
        return is_ours

    def resign(self) -> None:
        """Let another program lead, for good. Idempotent."""
        with self._turn:
            self._is_over = True
            self._close()

    def _close(self) -> None:
        held, self._connection = self._connection, None
        if held is not None:
            with suppress(*DATABASE_FAULTS):
                held.close()

    def _holds(self) -> bool:
        own = self._connection
        if own is None:
            # Apart from Django's own, which are closed after each use: the lock is of the session.
            own = connections["default"].copy()
            own.inc_thread_sharing()
        with own.cursor() as cursor:
            if self._connection is not None:
                cursor.execute("SELECT 1")  # the session, and with it the lock, is still there
                return True
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [self._lock])
            (is_ours,) = cursor.fetchone()
        if is_ours:
            self._connection = own
        else:
            own.close()
        return bool(is_ours)
