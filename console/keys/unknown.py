"""Compares the keys in NATS with the database: takes over their ends, and lists those that the database does not know.

A database that was lost, or restored from before a key was made, replaced or revoked, knows less than the gateways.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor, system_actor
from console.audit.acts import Target, act
from console.database import one_of
from console.keys import accounts
from console.keys.models import LIMITS, Account, ApiKey, UnknownKey
from console.outbox.ends import with_ends_of
from console.outbox.services import post_document
from signalbox.program import log
from signalbox.program.errors import Conflict
from signalbox.wire import keydocs, messages
from signalbox.wire.names import Bucket

_MOST_LETTERS: Final = 32
_WHY: Final = "NATS knew of it, and this database did not: was it restored from an older backup?"


def compare(held: Mapping[str, bytes]) -> None:
    """Take over what NATS knows of ends, and note the keys in force that only NATS knows.

    held: documents by key id.
    """
    found = {}
    for kid, data in held.items():
        if len(kid) > _MOST_LETTERS:
            continue  # no key that a gateway reads has such an id
        try:
            found[kid] = messages.decode(keydocs.ApiKey, data)
        except msgspec.MsgspecError as error:
            log.warning("keys.unreadable", key=kid, reason=str(error))
    known = {key.pk: key for key in ApiKey.objects.select_related("account")}
    for kid in found.keys() & known.keys():
        _take_end(known[kid], found[kid])
    keys = [UnknownKey(pk=kid, document=held[kid].decode()) for kid in found.keys() - known.keys()]
    in_force = {key.pk: key.document for key in keys if key.state() == "active"}
    UnknownKey.objects.exclude(pk__in=in_force).delete()
    for kid, document in in_force.items():
        UnknownKey.objects.update_or_create(id=kid, defaults={"document": document})


def adopt(actor: Actor, kid: str, *, reason: str = "") -> ApiKey:
    """Make a key that only NATS knows one of this database, as it is: it goes on, and can be replaced and revoked.

    Raises :class:`NotFound`, and :class:`Conflict` where the database knows it already or its account is deleted.
    """
    with act(actor, Act.KEYS_MANAGE, Target("key", kid), asked={"state": "adopted"}, reason=reason) as change:
        key = take_in(actor, kid)
        if key.account.deleted_at is not None:
            raise Conflict(f"Account {key.account.name} is deleted, and its keys have ended for good: revoke this one.")
        change.after = {"adopted": key.name, "account": key.account_id, "scopes": key.scopes}
        post_document(Bucket.KEYS, kid, key.document())
    return key


def take_in(actor: Actor, kid: str) -> ApiKey:
    """Make the row of a key that only NATS knows; the caller has checked the right. Raises as :func:`adopt`.

    An account that the database does not know either is made as the key says it was.
    """
    if ApiKey.objects.filter(pk=kid).exists():
        raise Conflict("This key is known already.")
    found = one_of(UnknownKey.objects.filter(pk=kid), f"There is no API key {kid!r} that only NATS knows.")
    doc = found.grant
    now = timezone.now()
    account, _ = Account.objects.get_or_create(
        pk=doc.account_id,
        defaults={
            "name": _own(doc.name or kid, kid, Account.objects.filter(deleted_at=None)),
            "models_allowed": list(doc.account_models),
            "created_at": now,
            "created_by": actor.name,
            "updated_at": now,
            "disabled_at": now if doc.is_disabled else None,
            **{field: getattr(doc.share, field) for field in accounts.BOUNDS},
        },
    )
    key = ApiKey.objects.create(
        id=kid,
        name=_own(doc.name or kid, kid, account.keys.filter(revoked_at=None, replaced_at=None)),
        owner=actor.name,
        hmac=doc.hmac,
        pepper=doc.pepper,
        scopes=list(doc.scopes),
        models_allowed=list(doc.models),
        queues_allowed=list(doc.queues),
        networks=list(doc.networks),
        account=account,
        **{field: getattr(doc, field) for field in LIMITS},
        lifetime=None if doc.expires_at is None else timedelta(seconds=max(0.0, doc.expires_at - doc.updated_at)),
        expires_at=_instant(doc.expires_at),
        revoked_at=_instant(doc.revoked_at),
        created_at=now,
        updated_at=now,
        created_by=actor.name,
    )
    found.delete()
    return key


def _own(name: str, kid: str, others: QuerySet[Account] | QuerySet[ApiKey]) -> str:
    """A name for what nobody names: as NATS has it, with the id where another one has it."""
    is_taken = others.filter(name__iexact=name[:100]).exists()
    return f"{name[: 99 - len(kid)]} {kid}" if is_taken else name[:100]


def _take_end(key: ApiKey, held: keydocs.ApiKey) -> None:
    mine = key.document()
    ended = with_ends_of(mine, held)
    if ended == mine:
        return
    with act(system_actor("controller"), Act.KEYS_MANAGE, Target("key", key.pk), reason=_WHY) as change:
        # The account before its key, as all others lock them.
        account = Account.objects.select_for_update().get(pk=key.account_id)
        row = ApiKey.objects.select_for_update().get(pk=key.pk)
        row.account = account
        now = timezone.now()
        row.expires_at = _instant(ended.expires_at)
        if ended.is_disabled and account.disabled_at is None:
            account.disabled_at, account.disabled_by = now, "controller"
            account.save()
        if row.revoked_at is None and ended.revoked_at is not None:
            row.revoked_at = _instant(ended.revoked_at)
            row.revoked_by, row.revoked_reason = "controller", _WHY
        row.updated_at = now
        row.save()
        change.before = {"state": key.state(now), "expires_at": key.end}
        change.after = {"state": row.state(now), "expires_at": row.end}
        post_document(Bucket.KEYS, key.pk, row.document())


def _instant(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, tz=UTC)
