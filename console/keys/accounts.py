"""Acts on accounts. Gateways learn of an account with each of its keys, so a change publishes all of them anew."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog.models import ServedModel
from console.database import one_of
from console.keys.models import Account, ApiKey
from console.outbox import services as outbox
from console.outbox.services import post_document
from signalbox.program import keys
from signalbox.program.errors import Conflict, InvalidRequest
from signalbox.wire import messages
from signalbox.wire.assets import KEPT_MAX_BYTES, KIB
from signalbox.wire.names import Bucket

MOST_NAME: Final = 100
MOST_NOTE: Final = 500
"""Characters."""
BOUNDS: Final = {
    "stored_bytes": 2**50,
    "waiting": 1_000_000,
    "idempotency_keys": 2**31 - 1,
    "result_bytes": 2**50,
    "queue_bytes": 2**50,
}
"""The highest value of each share; 0 = what :class:`signalbox.wire.keydocs.Share` says."""
MOST_KEYS: Final = 1000
"""Of one account, ended ones too: a change publishes each of them, in one transaction."""
MOST_DOCUMENT: Final = KEPT_MAX_BYTES - KIB
"""What NATS takes of a key's document, less its headers."""
_TERMS_PUBLISHED: Final = ("models", *BOUNDS)
_PREFIX: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,98})?\*\Z")
"""Of models' names (:data:`signalbox.wire.names.MODEL_NAME`), and a star."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What an account is called, may use and may hold. models: names or ``prefix*``, empty = all that are open.

    The numbers: see :data:`BOUNDS`.
    """

    name: str
    note: str = ""
    models: Sequence[str] = ()
    stored_bytes: int = 0
    waiting: int = 0
    idempotency_keys: int = 0
    result_bytes: int = 0
    queue_bytes: int = 0


def find(account_id: str) -> Account:
    """The account with this id, a deleted one too. Raises :class:`NotFound`."""
    return _found(Account.objects.all(), account_id)


def locked(account_id: str) -> Account:
    """The account, locked until this transaction ends: no other one changes it or adds a key to it.

    Raises :class:`NotFound`, and :class:`Conflict` for a deleted one.
    """
    account = _found(Account.objects.select_for_update(), account_id)
    if account.deleted_at is not None:
        raise Conflict(f"Account {account.name} is deleted; create another account.")
    return account


def listed() -> QuerySet[Account]:
    """All accounts that are not deleted, the newest first, as :func:`shown` has one."""
    return _described().filter(deleted_at=None)


def shown(account_id: str) -> Account:
    """An account, a deleted one too, with ``active_keys`` and ``last_used_at``. Raises :class:`NotFound`."""
    return _found(_described(), account_id)


def create(actor: Actor, terms: Terms) -> Account:
    """A new account, without keys. Raises :class:`InvalidRequest` naming the field."""
    _, account_id = keys.mint()  # an id like a key's, so that no key has it
    with act(actor, Act.ACCOUNTS_MANAGE, Target("account", account_id), asked=msgspec.to_builtins(terms)):
        _check(terms)
        now = timezone.now()
        account = Account(id=account_id, created_at=now, created_by=actor.name)
        _fill(account, terms)
        with own_name(f"name: there is an account {account.name} already: add keys to it, or choose another name."):
            account.save(force_insert=True)
    return account


def change(actor: Actor, account_id: str, changes: dict[str, Any], *, reason: str = "") -> Account:
    """Change some of an account's terms, and publish its keys if gateways are to know.

    Raises :class:`NotFound`, and :class:`InvalidRequest` naming the field.
    """
    with act(actor, Act.ACCOUNTS_MANAGE, Target("account", account_id), asked=changes, reason=reason) as noted:
        account = locked(account_id)
        before = terms_of(account)
        was = noted.before = msgspec.to_builtins(before)
        after = msgspec.structs.replace(before, **changes)
        _check(after)
        _fill(account, after)
        with own_name(f"name: there is an account {account.name} already; choose another name."):
            account.save()
        now = msgspec.to_builtins(after)
        noted.before = {name: was[name] for name in was if was[name] != now[name]}
        noted.after = {name: now[name] for name in noted.before}
        if not noted.before.keys().isdisjoint(_TERMS_PUBLISHED):
            publish(account)
    return account


def terms_of(account: Account) -> Terms:
    """What it is called, may use and may hold now."""
    return Terms(
        name=account.name,
        note=account.note,
        models=list(account.models_allowed),
        **{field: getattr(account, field) for field in BOUNDS},
    )


@contextmanager
def own_name(refusal: str) -> Iterator[None]:
    """The body writes a row whose name is its own. Raises :class:`Conflict` with these words where it is not."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        raise Conflict(refusal) from error


def require_room(account: Account) -> None:
    """Raise :class:`Conflict` where a :func:`locked` account takes no further key: it is disabled, or has too many."""
    if account.disabled_at is not None:
        raise Conflict(f"Account {account.name} is disabled: enable it first.")
    if account.keys.count() >= MOST_KEYS:
        raise Conflict(
            f"Account {account.name} has had {MOST_KEYS} keys, the most of one account: create another account."
        )


def check_models(names: Sequence[str]) -> None:
    """Raise :class:`InvalidRequest` for a list of models that names one twice, or one that is not there.

    ``team-*`` names all that begin with ``team-``, also those to come; ``*`` all that there are.
    """
    if len(set(names)) < len(names):
        raise InvalidRequest("models: name each once.")
    if (size := len(msgspec.json.encode(names))) > MOST_DOCUMENT:
        raise _too_long(size)
    whole = {name for name in names if not name.endswith("*")}
    if wrong := sorted(name for name in names if name not in whole and not _PREFIX.match(name)):
        raise InvalidRequest(f"models: {wrong[0][:60]!r} begins no model's name; write it like team-*.")
    there = ServedModel.objects.filter(name__in=whole).values_list("name", flat=True)
    missing = sorted(whole - set(there))
    if missing:
        raise InvalidRequest(f"models: there is no {', '.join(missing)}.")


def post_key(key: ApiKey) -> None:
    """Queue a key's document. Raises :class:`InvalidRequest` for one that NATS would not take."""
    document = key.document()
    if (size := len(messages.encode(document))) > MOST_DOCUMENT:
        raise _too_long(size)
    post_document(Bucket.KEYS, key.pk, document)


def why_unpublished(account: Account) -> str:
    """Why gateways do not know an account's newest terms, empty once they do; waits a moment for it."""
    last = account.keys.order_by("pk").last()
    if last is not None:  # the one that :func:`publish` posted last
        outbox.why_unpublished(Bucket.KEYS, last.pk)
    return unpublished(account)


def unpublished(account: Account) -> str:
    """Why gateways do not know of some key of an account as it is now; empty once they do."""
    waiting = outbox.waiting(Bucket.KEYS)
    kids = account.keys.filter(pk__in=waiting).order_by("pk").values_list("pk", flat=True)
    reasons = [waiting[kid] for kid in kids]
    return f"{len(reasons)} of its keys, {reasons[0]}" if reasons else ""


def publish(account: Account, touched_at: datetime | None = None) -> None:
    """Queue the document of each of a :func:`locked` account's keys.

    touched_at: when the keys themselves have changed, None = they have not.
    """
    # Locked, and in one order: a revocation under way is waited for, and read as it ended.
    for key in account.keys.select_for_update().order_by("pk"):
        key.account = account
        if touched_at is not None:
            key.updated_at = touched_at
            key.save(update_fields=("updated_at",))
        post_key(key)


def _described() -> QuerySet[Account]:
    now = timezone.now()
    is_active = Q(disabled_at=None, keys__revoked_at=None) & (Q(keys__expires_at=None) | Q(keys__expires_at__gt=now))
    return Account.objects.annotate(active_keys=Count("keys", filter=is_active), last_used_at=Max("keys__last_used_at"))


def _too_long(size: int) -> InvalidRequest:
    return InvalidRequest(
        f"models: gateways are told at most {MOST_DOCUMENT} bytes of one key and its account, and this takes {size}:"
        " name fewer models, or none for all."
    )


def _found(accounts: QuerySet[Account], account_id: str) -> Account:
    return one_of(accounts.filter(pk=account_id), f"There is no account {account_id!r}.")


def _fill(account: Account, terms: Terms) -> None:
    account.name, account.note = terms.name.strip(), terms.note.strip()
    account.models_allowed = list(terms.models)
    for field in BOUNDS:
        setattr(account, field, getattr(terms, field))
    account.updated_at = timezone.now()


def _check(terms: Terms) -> None:
    if not terms.name.strip() or len(terms.name) > MOST_NAME:
        raise InvalidRequest(f"name: 1 to {MOST_NAME} characters, so that others know the customer.")
    if len(terms.note) > MOST_NOTE:
        raise InvalidRequest(f"note: at most {MOST_NOTE} characters.")
    check_models(terms.models)
    for field, most in BOUNDS.items():
        if not 0 <= getattr(terms, field) <= most:
            raise InvalidRequest(f"{field}: 0 to {most}.")
