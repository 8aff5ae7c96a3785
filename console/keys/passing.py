"""Keys that the console makes for itself, for minutes, each for one model: of an account of its own."""

from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.keys import accounts
from console.keys.models import Account, ApiKey
from console.outbox.services import post_removals
from signalbox.program import keys
from signalbox.program.errors import Conflict, Misconfigured
from signalbox.wire.names import Bucket

ACCOUNT: Final = "console"
"""Id of that account. No key's id is as short."""
LIFETIME: Final = timedelta(minutes=5)
_KEPT: Final = timedelta(minutes=5)
"""After its end a key stays as long, for clocks that differ; then its row and its document go."""
_SCOPES: Final = ("jobs:submit", "jobs:read")


def create(model: str, owner: str) -> tuple[ApiKey, str]:
    """A new key and its text, which is kept nowhere. The caller is in an act, whose audit row tells of the key.

    Raises :class:`Misconfigured` without a pepper, and :class:`Conflict` where that account is disabled or deleted.
    """
    pepper = settings.CONSOLE.key_pepper
    if not pepper:
        raise Misconfigured("Set SIGNALBOX_KEY_PEPPER, the same for console and gateways.")
    text, kid = keys.mint()
    now = timezone.now()
    account, _ = Account.objects.get_or_create(
        pk=ACCOUNT,
        defaults={
            "name": "Console: try it",
            "note": "Of calls that operators make from a model's page.",
            "created_by": ACCOUNT,
        },
    )
    if account.state != "active":
        raise Conflict(
            f"Account {account.name} is {account.state}, so its keys are refused, and nobody tries models out."
        )
    key = ApiKey.objects.create(
        id=kid,
        account=account,
        name=f"{kid} tries {model}"[:100],  # names are unique within an account
        owner=owner,
        hmac=keys.digest(pepper, text),
        pepper=keys.pepper_id(pepper),
        scopes=list(_SCOPES),
        models_allowed=[model],
        lifetime=LIFETIME,
        expires_at=now + LIFETIME,
        created_at=now,
        updated_at=now,
        created_by=owner,
    )
    accounts.post_key(key)
    return key, text


def forget_ended() -> int:
    """Delete those that ended some minutes ago, here and in NATS; returns how many."""
    with transaction.atomic():
        ended = ApiKey.objects.filter(account_id=ACCOUNT, expires_at__lt=timezone.now() - _KEPT)
        kids = list(ended.select_for_update().values_list("pk", flat=True))
        if kids:
            ApiKey.objects.filter(pk__in=kids).delete()
            post_removals(Bucket.KEYS, [(kid, "") for kid in kids])
    return len(kids)
