"""Bounds of a login: a greatest age, a greatest time without a request, and its end when rights change.

Django ends a session when its row expires, but every save moves that moment on, so age and idleness are kept in the
session itself. A change of role, a lock-out and a new password end all sessions of their user through
:attr:`console.accounts.models.User.session_epoch`.
"""

import time
from collections.abc import Callable, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.contrib.auth import get_user, logout
from django.contrib.sessions.backends.db import SessionStore
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse

from signalbox.program import log

if TYPE_CHECKING:
    from console.accounts.models import User

doubted: Final = Signal()
"""``user_id``: this user's sessions or rights may have changed; open connections check them again."""
_BEGAN, _SEEN, _CONFIRMED = "began_at", "seen_at", "confirmed_at"
_SEEN_EVERY_S: Final = 60.0
CONFIRMED_S: Final = 300.0
"""How long an entered password counts in acts that ask for it again."""

Session = MutableMapping[str, Any]
Respond = Callable[[HttpRequest], HttpResponse]


def begin(sender: Any, request: HttpRequest, **_: Any) -> None:
    """Begin a login: note its times, and that the password was just entered. Receiver of ``user_logged_in``."""
    now = time.time()
    request.session.update({_BEGAN: now, _SEEN: now, _CONFIRMED: now})


def is_over(session: Session, now: float) -> str:
    """Why this login has ended (``age`` or ``idle``), or an empty text."""
    if now - session.get(_BEGAN, now) > settings.CONSOLE.session_s:
        return "age"
    if now - session.get(_SEEN, now) > settings.CONSOLE.idle_s:
        return "idle"
    return ""


def owner(key: str | None, now: float) -> "User | None":
    """The operator this session belongs to now, or None if it has ended or was switched off.

    Asks the session store and the database. For callers without a Django request.
    """
    from console.accounts.models import User

    if not key:
        return None
    request = HttpRequest()
    request.session = SessionStore(session_key=key)
    user = get_user(request)
    if isinstance(user, User) and user.is_active and not is_over(request.session, now):
        return user
    return None


def touch(session: Session, now: float) -> None:
    """Note that a request was made. Written at most once a minute."""
    if _BEGAN not in session or now - session.get(_SEEN, 0.0) > _SEEN_EVERY_S:
        session[_BEGAN] = session.get(_BEGAN, now)
        session[_SEEN] = now


def confirm(session: Session, now: float) -> None:
    """Note that the password was entered again."""
    session[_CONFIRMED] = now


def is_confirmed(session: Session, now: float) -> bool:
    """Whether the password was entered in the last :data:`CONFIRMED_S` seconds."""
    confirmed_at = float(session.get(_CONFIRMED, 0.0))
    return confirmed_at <= now < confirmed_at + CONFIRMED_S


def forget_ended(before: datetime, limit: int) -> int:
    """Delete up to ``limit`` sessions that expired before that; returns how many. No live login has one."""
    store = SessionStore.get_model_class()
    found = store.objects.filter(expire_date__lt=before).values_list("pk", flat=True)
    ended = list(found[:limit])
    store.objects.filter(pk__in=ended).delete()
    return len(ended)


class SessionLimits:
    """Ends logins that are too old or were idle too long, and has open connections of an ended session looked at."""

    def __init__(self, get_response: Respond) -> None:
        self._respond = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer the request, as an anonymous one if the login is over."""
        now = time.time()
        user_id, key = request.user.pk, request.session.session_key
        if request.user.is_authenticated:
            if why := is_over(request.session, now):
                log.info("session.ended", why=why, user=request.user.get_username())
                logout(request)
            else:
                touch(request.session, now)
        answer = self._respond(request)
        # Django's signal of a logout comes while the session is still there.
        if user_id is not None and request.session.session_key != key:
            doubted.send(sender=None, user_id=user_id)
        return answer
