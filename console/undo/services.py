"""Takes an act back by its inverse, which is an act like any other: its right is asked, and the audit has it.

Deletions have an undo of their own (:mod:`console.deletion`), and a split is promoted or rolled back.
"""

from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from console import bounds
from console.accounts import scope
from console.accounts.acts import Act
from console.accounts.models import User
from console.accounts.rights import Actor, may
from console.audit.acts import Target, check, preparing
from console.audit.models import AuditEntry
from console.catalog.models import ServedModel
from console.database import one_of
from console.fleet.models import DesiredState
from console.keys.models import Account
from console.outbound.models import Subscription, Webhook
from console.queues.models import Queue
from console.undo import inverses
from console.undo.inverses import Inverse
from signalbox.program.errors import Conflict, NotFound, SignalboxError

KEPT: Final = timedelta(days=1)
"""How long an act can be taken back."""
CONFIRMED: Final = frozenset({Act.USERS_MANAGE, Act.ACCOUNTS_MANAGE, Act.ACCOUNTS_DELETE, Act.QUEUES_MANAGE})
"""Acts whose inverse asks for the password if it was entered too long ago, as they do themselves."""


def _model_of(number: str) -> str | None:
    """The model that an act was about, which takes back who is limited to it."""
    rows = AuditEntry.objects.filter(number=bounds.number(number, "number"))
    entry = rows.first()
    return scope.model_of(entry.target_kind, entry.target) if entry is not None else None


scope.belongs("audit", _model_of)


def find(actor: Actor, number: str) -> AuditEntry:
    """An act, by the number of its row of the audit. Raises :class:`Forbidden` and :class:`NotFound`."""
    check(actor, Act.AUDIT_VIEW, Target("audit", number))
    wanted = bounds.number(number, "number")
    return one_of(AuditEntry.objects.filter(number=wanted), f"The audit has no act {wanted}.")


def undo(actor: Actor, entry: AuditEntry, *, reason: str = "") -> str:
    """Put back what an act has changed; why the fleet does not know it yet, empty once it does.

    Raises :class:`NotFound` for an act without an inverse, :class:`Conflict` where it was changed again meanwhile or
    that is too long ago, and what the inverse raises.
    """
    if not inverses.has_any(entry):
        raise NotFound(_no_undo(entry))
    what, target, asked = Act(entry.act), Target(entry.target_kind, entry.target), {"undo": entry.number}
    check(actor, what, target, asked=asked, reason=reason)
    why = f"Undo of {entry.number}. {reason}".strip()[:200]
    refused: SignalboxError | None = None
    inverse: Inverse | None = None
    with transaction.atomic():
        _lock(entry)
        try:  # a refusal is kept, so that its row of the audit is: an error would roll it back
            with preparing(actor, what, target, asked=asked, reason=reason):
                inverse = _standing(entry)
            inverse.run(actor, why)
        except SignalboxError as error:
            refused = error
    if refused is not None:
        raise refused
    assert inverse is not None
    return inverse.why_unpublished()


def of_request(actor: Actor) -> AuditEntry | None:
    """The newest act of this request, if it can be taken back."""
    done = AuditEntry.objects.filter(result=AuditEntry.DONE, actor_name=actor.name, request_id=actor.request_id)
    entry = done.first() if actor.request_id else None
    return entry if entry is not None and may_undo(actor, entry) else None


def may_undo(actor: Actor, entry: AuditEntry) -> bool:
    """Whether :func:`undo` would take the act back now."""
    if not inverses.has_any(entry) or not may(actor, Act(entry.act), place=(entry.target_kind, entry.target)):
        return False
    try:
        _standing(entry)
    except SignalboxError:
        return False
    return True


def _standing(entry: AuditEntry) -> Inverse:
    """The inverse of an act whose values still stand. Raises :class:`NotFound` and :class:`Conflict`."""
    if timezone.now() > entry.at + KEPT:
        raise Conflict(f"Act {entry.number} could be undone for a day. Change it by hand.")
    inverse = inverses.of(entry)
    changed = [name for name, was in entry.before.items() if name in entry.after and entry.after[name] != was]
    if inverse is None or not changed:
        raise NotFound(_no_undo(entry))
    for name, asked in entry.after.items():  # more than was there before: a new pin's version and hosts
        if name in inverse.now and inverse.now[name] != asked:
            raise Conflict(
                f"{name} of {entry.target} was changed again meanwhile: it is {_said(inverse.now[name])} now, and was"
                f" {_said(asked)} after act {entry.number}."
            )
    return inverse


def _no_undo(entry: AuditEntry) -> str:
    return f"Act {entry.number} ({entry.act} on {entry.target}) has no undo."


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def _lock(entry: AuditEntry) -> None:
    """Has nobody change it between the look at its values and the inverse."""
    if entry.target_kind == "model":
        ServedModel.objects.select_for_update().filter(name=entry.target).first()
        DesiredState.objects.select_for_update().filter(name=entry.target).first()
    elif entry.target_kind == "worker":
        DesiredState.objects.select_for_update().filter(name=entry.target).first()
    elif entry.target_kind == "account":
        Account.objects.select_for_update().filter(pk=entry.target).first()
    elif entry.target_kind == "webhook":
        Webhook.objects.select_for_update().filter(pk=entry.target).first()
    elif entry.target_kind == "subscription":
        Subscription.objects.select_for_update().filter(pk=entry.target).first()
    elif entry.target_kind == "queue":
        Queue.objects.select_for_update().filter(pk=entry.target).first()
    elif entry.target_kind == "user":
        User.objects.select_for_update().filter(username=entry.target).first()
