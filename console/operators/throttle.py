"""Slows down guessing of passwords. A wait that grows, never a lock: no caller can lock an operator out for good."""

import ipaddress
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from console.accounts.models import LoginFailure
from console.operators import hashing
from signalbox.program import log, metrics
from signalbox.program.errors import LimitExceeded
from signalbox.program.words import counted

WINDOW: Final = timedelta(minutes=15)
"""Failures older than this are forgotten."""
FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
_REFUSED: Final = metrics.counter("console_login_refused", "Logins refused before the password was looked at.", "by")


def judge(account: str, address: str, is_right: Callable[[], bool]) -> bool:
    """Whether a password is right. It is counted as a failure before it is looked at, and taken back if it is none.

    So of many at once no more are looked at than of as many one after the other. Raises :class:`LimitExceeded`,
    and :class:`Unavailable` while too many are looked at; neither counts.
    """
    failure = _claim(account, address)
    try:
        with hashing.places().place(network(address)):
            found = is_right()
    except BaseException:
        failure.delete()
        raise
    if found:
        forget(account, address)
    else:  # the wait begins with the answer
        LoginFailure.objects.filter(pk=failure.pk).update(at=timezone.now())
    return found


def _claim(account: str, address: str) -> LoginFailure:
    with transaction.atomic():
        if connection.vendor == "postgresql":  # SQLite has one writer at a time
            with connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {LoginFailure._meta.db_table} IN EXCLUSIVE MODE")  # noqa: SLF001  Django's public name for it
        check(account, address)
        return note_failure(account, address)


def check(account: str, address: str) -> None:
    """Raises :class:`LimitExceeded` after too many failures of this account from there, or from this address.

    Each failure past the limit doubles the wait since the last one, up to five minutes. What is refused here is
    no failure, so waiting always ends. Counted per account *and* address, so that a stranger cannot keep the owner
    waiting; a guesser with many addresses is up against 12 characters and argon2id.
    """
    now, near = timezone.now(), network(address)
    recent = LoginFailure.objects.filter(at__gte=now - WINDOW, address=near).order_by("-at")
    limits = (
        ("account", recent.filter(account=account.casefold()[:150]), settings.CONSOLE.login_per_account),
        ("address", recent, settings.CONSOLE.login_per_address),
    )
    for by, failures, limit in limits:
        times: list[datetime] = list(failures.values_list("at", flat=True)[: limit + 16])
        left_s = wait_s(len(times), limit) - (now - times[0]).total_seconds() if times else 0.0
        if left_s > 0:
            _REFUSED.labels(by).inc()
            log.warning("login.throttled", by=by, address=near, left_s=round(left_s))
            raise LimitExceeded(
                f"Too many failed logins. Wait {_in_words(left_s)} and try again.", retry_after_s=left_s
            )


def wait_s(failures: int, limit: int) -> float:
    """The pause after so many failures: none below the limit, then 5, 10, 20 ... 300 seconds."""
    if failures < limit:
        return 0.0
    return float(min(FIRST_S * 2 ** (failures - limit), LONGEST_S))


def note_failure(account: str, address: str) -> LoginFailure:
    """Remember a failed login, and forget those long past."""
    LoginFailure.objects.filter(at__lt=timezone.now() - WINDOW).delete()
    return LoginFailure.objects.create(account=account.casefold()[:150], address=network(address))


def forget(account: str, address: str) -> None:
    """A login that worked clears the account's failures from there."""
    LoginFailure.objects.filter(account=account.casefold()[:150], address=network(address)).delete()


def network(address: str) -> str:
    """What one guesser can easily move within: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:45]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def _in_words(seconds: float) -> str:
    return counted(round(seconds / 60), "minute") if seconds > 90 else counted(max(1, round(seconds)), "second")
