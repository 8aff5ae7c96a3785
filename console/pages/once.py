"""A secret on its way across a redirect to the one page that shows it, once.

The secret is split: random bytes go into a short-lived cookie, the secret XOR these bytes into the session's
row. Either half alone is noise, so neither the database nor the browser's jar ever holds the secret.
"""

import secrets
import time
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse

KEPT_S: Final = 60.0
"""How long the redirect may take; a secret not fetched by then is lost."""
_SLOT: Final = "shown_once"


def keep(request: HttpRequest, response: HttpResponse, about: str, text: str) -> None:
    """Keep ``text`` for the next :func:`take` about the same thing. response: the redirect there."""
    secret = text.encode()
    pad = secrets.token_bytes(len(secret))
    request.session[_SLOT] = {"about": about, "half": _xor(secret, pad).hex(), "until": time.time() + KEPT_S}
    response.set_cookie(
        _cookie(),
        pad.hex(),
        max_age=int(KEPT_S),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )


def take(request: HttpRequest, about: str) -> str:
    """The text kept about this thing, or an empty text: never kept, too old, or shown before."""
    kept = request.session.get(_SLOT)
    if not kept or kept["about"] != about:
        return ""
    del request.session[_SLOT]
    half = bytes.fromhex(kept["half"])
    try:
        pad = bytes.fromhex(request.COOKIES.get(_cookie(), ""))
    except ValueError:
        return ""
    if time.time() > kept["until"] or len(pad) != len(half):
        return ""
    return _xor(half, pad).decode(errors="replace")


def shown(response: HttpResponse) -> None:
    """Delete the cookie with the answer that shows the secret."""
    response.delete_cookie(_cookie(), samesite="Strict")


def _cookie() -> str:
    return f"{settings.SESSION_COOKIE_NAME}_once"


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
