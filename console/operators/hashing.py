"""Hashes few passwords at a time: a hash takes 100 MiB and a core, and any caller can cause one.

Each waiting login holds a thread, so places to wait are bounded too. One address may hold no more of them than are
still free, so a flood from one leaves room for all others.
"""

import functools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.conf import settings
from django.contrib.auth.hashers import Argon2PasswordHasher

from signalbox.program import log, metrics
from signalbox.program.errors import Unavailable

AT_ONCE: Final = 2
"""Passwords hashed at once: each takes 100 MiB and a core for a tenth of a second, and others are to be served too."""
_RETRY_S: Final = 5.0
_REFUSED: Final = metrics.counter(
    "console_passwords_refused", "Passwords that were not looked at, by what was full.", "by"
)


class Places:
    """Bounded places for waiting attempts, ``most`` in all."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, Counter[str]()
        self._lock = threading.Lock()

    @contextmanager
    def place(self, who: str) -> Iterator[None]:
        """One place for ``who``. Raises :class:`Unavailable` where all are taken, or ``who`` has its share."""
        with self._lock:
            is_full = self._held[who] >= self._most - self._held.total()
            if not is_full:
                self._held[who] += 1
        if is_full:
            raise _busy("places", who)
        try:
            yield
        finally:
            with self._lock:
                self._held[who] -= 1
                self._held += Counter()  # forget who holds none


@functools.cache
def places() -> Places:
    """Those of this process."""
    return Places(settings.CONSOLE.login_places)


@functools.cache
def _hashing() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def turn() -> Iterator[None]:
    """A turn to hash. Raises :class:`Unavailable` where none comes within ``login_wait_s``."""
    if not _hashing().acquire(timeout=settings.CONSOLE.login_wait_s):
        raise _busy("turns", "")
    try:
        yield
    finally:
        _hashing().release()


class BoundedArgon2(Argon2PasswordHasher):
    """Django's, a turn at a time. Its hashes are Django's own, and read by it."""

    def encode(self, password: str, salt: str) -> str:
        """The hash. Raises :class:`Unavailable`."""
        with turn():
            return str(super().encode(password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        """Whether it is right. Raises :class:`Unavailable`."""
        with turn():
            return bool(super().verify(password, encoded))


def _busy(by: str, who: str) -> Unavailable:
    _REFUSED.labels(by).inc()
    log.warning("login.busy", by=by, address=who)
    return Unavailable(
        "Too many passwords are being checked at once. Try again in a few seconds.", retry_after_s=_RETRY_S
    )
