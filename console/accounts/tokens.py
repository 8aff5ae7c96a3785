"""Tokens of the console's REST API: ``sbo_<id>_<secret>``. Only a keyed hash is kept."""

import base64
import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.utils import timezone

from console.accounts.models import OperatorToken

_FORM: Final = re.compile(r"sbo_([a-z2-7]{12})_([A-Za-z0-9]{43})\Z")
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_SEEN_EVERY: Final = timedelta(minutes=1)


def mint() -> tuple[str, str, str]:
    """A new token: ``(text, id, digest)``. The secret has 256 bits."""
    token_id = base64.b32encode(secrets.token_bytes(8)).decode().lower()[:12]
    text = f"sbo_{token_id}_{''.join(secrets.choice(_ALPHABET) for _ in range(43))}"
    return text, token_id, digest(text)


def digest(text: str) -> str:
    """Keyed hash of a token's text; a fast one is right for a random secret."""
    key = hashlib.sha256(b"operator tokens\0" + settings.SECRET_KEY.encode()).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def resolve(text: str, now: datetime | None = None) -> OperatorToken | None:
    """The live token behind ``text``, or None: unknown, wrong, revoked, expired and malformed look alike."""
    match = _FORM.match(text)
    at = now or timezone.now()
    token = OperatorToken.objects.select_related("user").filter(pk=match[1]).first() if match else None
    known = token.digest if token else "0" * 64
    is_right = hmac.compare_digest(known, digest(text))
    if not (is_right and token and token.is_live(at) and token.user.is_active):
        return None
    if token.last_used_at is None or at - token.last_used_at > _SEEN_EVERY:
        OperatorToken.objects.filter(pk=token.pk).update(last_used_at=at)
    return token
