"""Acts on subscriptions: whose ends of jobs go to the output stream."""

import secrets

from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.database import one_of
from console.outbound import covering
from console.outbound.models import Subscription
from console.outbox import services as outbox
from signalbox.program.errors import Conflict
from signalbox.wire.names import Bucket


def listed() -> QuerySet[Subscription]:
    """All of them, the newest first."""
    return Subscription.objects.select_related("account")


def find(subscription_id: str) -> Subscription:
    """One of them. Raises :class:`NotFound`."""
    return _found(listed(), subscription_id)


def create(actor: Actor, *, account: str = "", model: str = "") -> Subscription:
    """Have the ends of an account's jobs, or of all, of a model or of all, go to the output stream from now on.

    Raises :class:`InvalidRequest` naming the field, and :class:`Conflict` where there is the same one already.
    """
    made = Subscription(id=f"sub_{secrets.token_hex(6)}", created_by=actor.name)
    asked = {"account": account, "model": model}
    with act(actor, Act.RESULTS_MANAGE, Target("subscription", made.pk), asked=asked):
        made.account = covering.account_of(account)
        made.model = covering.model_of(model)
        if Subscription.objects.filter(account=made.account, model=made.model).exists():
            raise Conflict(f"There is a subscription to {made.words} already. Switch it on if it is off.")
        made.save(force_insert=True)
        _post(made)
    return made


def switch(actor: Actor, subscription_id: str, *, is_on: bool, reason: str = "") -> Subscription:
    """Switch it on or off; what is in the stream stays. Raises :class:`NotFound`, :class:`Conflict` if it is so."""
    target = Target("subscription", subscription_id)
    with act(actor, Act.RESULTS_SWITCH, target, asked={"is_on": is_on}, reason=reason) as change:
        found = _found(Subscription.objects.select_for_update(), subscription_id)
        change.before = {"is_on": found.is_enabled}
        if found.is_enabled == is_on:
            raise Conflict(f"It is {'on' if is_on else 'off'} already.")
        found.is_enabled, found.updated_at = is_on, timezone.now()
        found.save()
        _post(found)
    return found


def delete(actor: Actor, subscription_id: str, *, reason: str = "") -> Subscription:
    """Delete it; what is in the stream stays there until it is too old. Raises :class:`NotFound`."""
    target, asked = Target("subscription", subscription_id), {"state": "deleted"}
    with act(actor, Act.RESULTS_MANAGE, target, asked=asked, reason=reason) as change:
        found = _found(Subscription.objects.select_for_update(), subscription_id)
        change.before = {"account": found.account_id or "", "model": found.model}
        change.after = {"state": "deleted"}
        Subscription.objects.filter(pk=found.pk).delete()
        outbox.post_removals(Bucket.SUBSCRIPTIONS, [(found.pk, "")])
    return found


def why_unpublished(subscription_id: str) -> str:
    """Why the outbound program does not know of it as it is; empty once it does. Waits a moment."""
    return outbox.why_unpublished(Bucket.SUBSCRIPTIONS, subscription_id)


def unpublished() -> dict[str, str]:
    """Why the outbound program does not know of one as it is, by id; one that is not here it knows."""
    return outbox.waiting(Bucket.SUBSCRIPTIONS)


def _post(subscription: Subscription) -> None:
    outbox.post_document(Bucket.SUBSCRIPTIONS, subscription.pk, subscription.document())


def _found(rows: QuerySet[Subscription], subscription_id: str) -> Subscription:
    return one_of(rows.filter(pk=subscription_id), f"There is no subscription {subscription_id[:60]!r}.")
