"""Acts on API keys. The text of a key exists once: in the answer of :func:`create`."""

import ipaddress
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
from django.conf import settings
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.bounds import MOST_COUNT
from console.database import one_of
from console.keys import accounts, unknown
from console.keys.models import LIMITS, Account, ApiKey, UnknownKey
from console.outbox import services as outbox
from signalbox.program import keys
from signalbox.program.errors import Conflict, InvalidRequest, Misconfigured, NotFound
from signalbox.wire.asks import SCOPE
from signalbox.wire.names import Bucket
from signalbox.wire.queues import MOST_QUEUES

SCOPE_WORDS: Final = {
    "jobs:submit": "submit jobs and predictions",
    "jobs:read": "read its own jobs and results",
    "jobs:cancel": "cancel its own jobs",
    "jobs:urgent": "ask for priority hi, and so overtake everybody else's jobs",
    "queues:put": "put items into queues",
    "queues:get": "get, count and search items of queues, and see how queues stand",
    "queues:watch": "watch queues, and commit items or give them back",
    "queues:manage": "delete and truncate items of queues, end their streams, and read their rear queues",
    SCOPE: "load and unload the models it may call, and give imported ones other versions and labels",
}
SCOPES: Final = tuple(SCOPE_WORDS)
DEFAULT_SCOPES: Final = ("jobs:submit", "jobs:read", "jobs:cancel")
DEFAULT_DAYS: Final = 90
MAX_DAYS: Final = 365
MAX_OVERLAP_DAYS: Final = 7
"""How long a key that was replaced may go on."""
_MOST_NETWORKS: Final = 50
_INHERITED: Final = ("name", "owner", "scopes", "models_allowed", "queues_allowed", "networks", *LIMITS)
"""Fields that a key has from the one it replaces."""


class KeyGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What a key allows. models: names or ``prefix*``, empty = all that are open. queues: names of its account's,
    empty = all of them. networks: CIDR blocks, empty = everywhere.

    account: id of the one it belongs to, empty = one of its own. days: until it expires. rate per ``per_s`` seconds,
    quota per ``quota_window_s`` seconds; 0 = unlimited.
    """

    name: str
    owner: str = ""
    account: str = ""
    scopes: Sequence[str] = DEFAULT_SCOPES
    models: Sequence[str] = ()
    rate: int = 0
    per_s: int = 1
    quota: int = 0
    quota_window_s: int = 86_400
    days: int = DEFAULT_DAYS
    queues: Sequence[str] = ()
    networks: Sequence[str] = ()


def find(kid: str) -> ApiKey:
    """The key with this public id. Raises :class:`NotFound`."""
    return one_of(ApiKey.objects.filter(pk=kid), f"There is no API key {kid!r}.")


def create(actor: Actor, grant: KeyGrant) -> tuple[ApiKey, str]:
    """A new key and its text, which is kept nowhere and cannot be had again.

    Raises :class:`InvalidRequest` naming the field, :class:`Misconfigured` without a pepper.
    """
    text, kid, secrets = _mint()
    with act(actor, Act.KEYS_MANAGE, Target("key", kid), asked=msgspec.to_builtins(grant)) as change:
        _check(grant)
        now = timezone.now()
        name = grant.name.strip()
        account = _account(actor, grant, kid)
        _check_queues(account, grant.queues)
        key = ApiKey(
            id=kid,
            account=account,
            **secrets,
            name=name,
            owner=grant.owner.strip() or actor.name,
            scopes=list(grant.scopes),
            models_allowed=list(grant.models),
            queues_allowed=list(grant.queues),
            networks=_blocks(grant.networks),
            **{field: getattr(grant, field) for field in LIMITS},
            lifetime=timedelta(days=grant.days),
            expires_at=now + timedelta(days=grant.days),
            created_at=now,
            updated_at=now,
            created_by=actor.name,
        )
        with accounts.own_name(
            f"name: account {account.name} has a key {name} already: replace or revoke it, or choose another name."
        ):
            key.save(force_insert=True)
        change.after["account"] = account.pk
        accounts.post_key(key)
    return key, text


def _account(actor: Actor, grant: KeyGrant, kid: str) -> Account:
    """The account a new key goes into, locked; where none is named a new one, under the key's id and name."""
    if grant.account:
        try:
            account = accounts.locked(grant.account)
        except NotFound as error:
            raise InvalidRequest(f"account: {error.public_message}") from error
        accounts.require_room(account)
        return account
    name = grant.name.strip()
    with accounts.own_name(
        f"name: the key would get an account of its own, and there is an account {name} already: create the key in it,"
        " or choose another name."
    ):
        return Account.objects.create(id=kid, name=name, created_by=actor.name)


def rotate(actor: Actor, kid: str, *, overlap_days: float = 1, days: int | None = None) -> tuple[ApiKey, str]:
    """A new key that may what this one may, and owns its jobs; this one ends ``overlap_days`` from now.

    days: until the new one expires; None: it is valid for as long as this one was made for.
    Returns the new key and its text. Raises :class:`NotFound`, :class:`InvalidRequest` naming the field, and
    :class:`Conflict` if the key has ended or been replaced already.
    """
    text, new_kid, secrets = _mint()
    asked = {"state": "replaced", "overlap_days": overlap_days, **({"days": days} if days is not None else {})}
    with act(actor, Act.KEYS_MANAGE, Target("key", kid), asked=asked) as change:
        if not 0 <= overlap_days <= MAX_OVERLAP_DAYS:
            raise InvalidRequest(f"overlap_days: 0 to {MAX_OVERLAP_DAYS}.")
        if days is not None:
            _check_days(days)
        account = accounts.locked(find(kid).account_id)  # before its keys, as everybody locks them
        accounts.require_room(account)
        old = ApiKey.objects.select_for_update().get(pk=kid)
        now = timezone.now()
        if old.state(now) != "active":
            raise Conflict(f"This key is {old.state(now)} already; create a new one.")
        if old.replaced_at is not None:
            newer = old.successors.order_by("-created_at").values_list("pk", flat=True).first()
            raise Conflict(f"This key has been replaced already, by {newer}: replace that one.")
        lifetime = old.lifetime if days is None else timedelta(days=days)
        change.before = {"account": account.pk, "expires_at": old.end}
        ends_at = now + timedelta(days=overlap_days)
        if old.expires_at is None or ends_at < old.expires_at:
            old.expires_at = ends_at
        old.updated_at = old.replaced_at = now
        old.save()  # before the new one, which takes its name
        new = ApiKey.objects.create(
            id=new_kid,
            **secrets,
            **{field: getattr(old, field) for field in _INHERITED},
            account=account,
            rotated_from=old,
            lifetime=lifetime,
            expires_at=None if lifetime is None else now + lifetime,
            created_at=now,
            updated_at=now,
            created_by=actor.name,
        )
        change.after = {"account": account.pk, "replaced_by": new_kid, "expires_at": old.end}
        accounts.post_key(new)
        accounts.post_key(old)
    return new, text


def why_unpublished(key: ApiKey) -> str:
    """Why gateways do not know a new key, or the end of the one it replaces; empty once they do. Waits a moment."""
    kids = [key.pk, *([key.rotated_from_id] if key.rotated_from_id else ())]
    found = (outbox.why_unpublished(Bucket.KEYS, kid) for kid in kids)
    return next(filter(None, found), "")


def _mint() -> tuple[str, str, dict[str, str]]:
    """A key's text, its public id, and what is kept of it. Raises :class:`Misconfigured` without a pepper."""
    pepper = settings.CONSOLE.key_pepper
    if not pepper:
        raise Misconfigured("Set SIGNALBOX_KEY_PEPPER, the same for console and gateways.")
    text, kid = keys.mint()
    return text, kid, {"hmac": keys.digest(pepper, text), "pepper": keys.pepper_id(pepper)}


def revoke(actor: Actor, kid: str, *, reason: str = "") -> ApiKey:
    """End a key now and for ever, also one that only NATS knows.

    Raises :class:`NotFound`, or :class:`Conflict` if it is revoked already.
    """
    target, asked = Target("key", kid, revokes=True), {"state": "revoked"}
    with act(actor, Act.KEYS_MANAGE, target, asked=asked, reason=reason) as change:
        key = ApiKey.objects.select_for_update().filter(pk=kid).first()
        if key is None and UnknownKey.objects.filter(pk=kid).exists():
            key = unknown.take_in(actor, kid)
        if key is None:
            raise NotFound(f"There is no API key {kid!r}.")
        change.before = {"account": key.account_id, "state": key.state()}
        if key.revoked_at is not None:
            raise Conflict("This key is revoked already.")
        end(key, actor, reason)
        change.after = {"account": key.account_id, "state": "revoked"}
    return key


def end(key: ApiKey, actor: Actor, reason: str) -> None:
    """End a key that is locked, in a transaction that is under way."""
    key.revoked_at = key.updated_at = timezone.now()
    key.revoked_by, key.revoked_reason = actor.name, reason[:200]
    key.save()
    # The document stays, marked: gateways tell a revoked key from one they have not seen.
    accounts.post_key(key)


def _check(grant: KeyGrant) -> None:
    if not grant.name.strip() or len(grant.name) > 100:
        raise InvalidRequest("name: 1 to 100 characters, so that others know what it is for.")
    wrong = sorted(set(grant.scopes) - set(SCOPES))
    if wrong or not grant.scopes:
        raise InvalidRequest(f"scopes: one or more of {', '.join(SCOPES)}.")
    if len(set(grant.scopes)) < len(grant.scopes):
        raise InvalidRequest("scopes: name each once.")
    accounts.check_models(grant.models)
    _check_days(grant.days)
    limits, windows = (grant.rate, grant.quota), (grant.per_s, grant.quota_window_s)
    if min(limits) < 0 or min(windows) < 1 or max(*limits, *windows) > MOST_COUNT:
        raise InvalidRequest(
            f"rate and quota: 0 or more; their windows: at least one second; each at most {MOST_COUNT}."
        )


def _check_queues(account: Account, queues: Sequence[str]) -> None:
    if len(set(queues)) < len(queues) or len(queues) > MOST_QUEUES:
        raise InvalidRequest(f"queues: name each once, at most {MOST_QUEUES}.")
    there = account.queues.filter(pk__in=queues).values_list("pk", flat=True)
    if missing := sorted(set(queues) - set(there)):
        raise InvalidRequest(f"queues: account {account.name} has no {', '.join(missing)[:200]}.")


def _check_days(days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise InvalidRequest(f"days: 1 to {MAX_DAYS}.")


def _blocks(networks: Sequence[str]) -> list[str]:
    """CIDR blocks in their one written form. Raises :class:`InvalidRequest` naming the one that is none."""
    if len(networks) > _MOST_NETWORKS:
        raise InvalidRequest(f"networks: at most {_MOST_NETWORKS}.")
    found = []
    for text in networks:
        try:
            found.append(str(ipaddress.ip_network(text.strip())))
        except ValueError as error:
            raise InvalidRequest(
                f"networks: {text[:50]!r} is no block such as 192.0.2.0/24 or 2001:db8::/32."
            ) from error
    return found
