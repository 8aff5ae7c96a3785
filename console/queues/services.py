"""Acts on queues: make, change and delete them. What is in them is in :mod:`console.queues.contents`."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog.models import ServedModel
from console.database import one_of
from console.keys.models import Account
from console.outbox import services as outbox
from console.queues.models import Queue
from console.queues.terms import NAME, Terms, changed
from signalbox.program.errors import Conflict, InvalidRequest
from signalbox.wire import names
from signalbox.wire.access import is_listed
from signalbox.wire.names import Bucket
from signalbox.wire.queues import MOST_QUEUES

_SUBMIT: Final = "jobs:submit"
_NAMED: Final = "name: 1 to 60 letters, digits, “.”, “_” and “-”, with a letter or a digit first."


def listed() -> QuerySet[Queue]:
    """All of them, by name."""
    return Queue.objects.select_related("account")


def find(name: str) -> Queue:
    """One of them. Raises :class:`NotFound`."""
    return _found(listed(), name)


def terms_of(queue: Queue) -> Terms:
    """What it is set to now."""
    return msgspec.convert(queue, Terms, from_attributes=True)


def without_key(queue: Queue) -> list[str]:
    """Its services that take nothing, as no key that is there may submit the jobs of their items."""
    keys = queue.account.keys.select_related("account").filter(revoked_at=None)
    if queue.key:
        keys = keys.filter(pk=queue.key)
    may = [key.document() for key in keys if key.state() == "active" and _SUBMIT in key.scopes]
    return [model for model in queue.services if not any(is_listed(key, model) for key in may)]


def create(actor: Actor, name: str, account: str, terms: Mapping[str, Any], *, reason: str = "") -> Queue:
    """A new, empty queue of an account. terms: those that are not as they are by default.

    Raises :class:`InvalidRequest` naming the field, and :class:`Conflict` where the name is taken, or there are too
    many.
    """
    name = name.strip()
    asked = {"account": account, **terms}
    with act(actor, Act.QUEUES_MANAGE, Target("queue", name), asked=asked, reason=reason) as change:
        if not NAME.match(name):
            raise InvalidRequest(_NAMED)
        found = changed(Terms(), terms)
        owner = Account.objects.filter(pk=account, deleted_at=None).first()
        if owner is None:
            raise InvalidRequest(f"account: there is no {account[:60]!r}. Give the account's id.")
        _check_services(owner, found)
        if Queue.objects.filter(pk=name).exists():
            raise Conflict(f"name: there is a queue {name} already.")
        if Queue.objects.count() >= MOST_QUEUES:  # of two at once the outbound program makes one fail
            raise Conflict(f"There are {MOST_QUEUES} queues, the most of one installation: delete one first.")
        made = Queue(name=name, account=owner, created_by=actor.name)
        _fill(made, found)
        made.save(force_insert=True)
        change.after = {"account": owner.pk, **_differences(Terms(), found)[1]}
        _post(made)
    return made


def change(actor: Actor, name: str, changes: Mapping[str, Any], *, reason: str = "") -> Queue:
    """Change some of its settings; items, groups and what they have committed stay.

    Raises :class:`NotFound`, and :class:`InvalidRequest` naming the field.
    """
    with act(actor, Act.QUEUES_MANAGE, Target("queue", name), asked=changes, reason=reason) as noted:
        queue = _locked(name)
        before = terms_of(queue)
        after = changed(before, changes)
        if (after.services, after.key) != (before.services, before.key):
            _check_services(queue.account, after)
        noted.before, noted.after = _differences(before, after)
        _fill(queue, after)
        queue.updated_at = timezone.now()
        queue.save()
        _post(queue)
    return queue


def delete(actor: Actor, name: str, *, reason: str = "") -> Queue:
    """Delete it with all that is in it, its rear queue too. Raises :class:`NotFound`."""
    target, asked = Target("queue", name), {"state": "deleted"}
    with act(actor, Act.QUEUES_MANAGE, target, asked=asked, reason=reason) as change:
        queue = _locked(name)
        change.before = {"account": queue.account_id}
        change.after = {"state": "deleted"}
        Queue.objects.filter(pk=name).delete()
        outbox.post_removals(Bucket.QUEUES, [(key_of(name), name)])
    return queue


def key_of(name: str) -> str:
    """Its key in NATS."""
    return names.token(name)


def why_unpublished(name: str) -> str:
    """Why the fleet does not know of it as it is; empty once it does. Waits a moment."""
    return outbox.why_unpublished(Bucket.QUEUES, key_of(name))


def unpublished() -> dict[str, str]:
    """Why the fleet does not know of a queue as it is, by name; one that is not here it knows."""
    return {names.untoken(key): why for key, why in outbox.waiting(Bucket.QUEUES).items()}


def _differences(before: Terms, after: Terms) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is otherwise: as it was, and as it is."""
    was, now = msgspec.to_builtins(before), msgspec.to_builtins(after)
    names_of = [name for name in was if was[name] != now[name]]
    return {name: was[name] for name in names_of}, {name: now[name] for name in names_of}


def _check_services(account: Account, terms: Terms) -> None:
    if terms.key and not account.keys.filter(pk=terms.key, revoked_at=None).exists():
        raise InvalidRequest(f"key: account {account.name} has no {terms.key[:40]!r} that is in force.")
    there = set(ServedModel.objects.filter(name__in=terms.services).values_list("name", flat=True))
    if missing := sorted(set(terms.services) - there):
        raise InvalidRequest(f"services: there is no model {', '.join(missing)[:200]}.")


def _fill(queue: Queue, terms: Terms) -> None:
    for name, value in msgspec.to_builtins(terms).items():
        setattr(queue, name, value)


def _post(queue: Queue) -> None:
    outbox.post_document(Bucket.QUEUES, key_of(queue.name), queue.document(), name=queue.name)


def _locked(name: str) -> Queue:
    return _found(Queue.objects.select_for_update(), name)


def _found(rows: QuerySet[Queue], name: str) -> Queue:
    return one_of(rows.filter(pk=name), f"There is no queue {name[:60]!r}.")
