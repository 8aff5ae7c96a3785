"""The one way to change something: permission, change and audit row in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import transaction

from console.accounts.acts import Act
from console.accounts.rights import Actor, authorize
from console.audit.models import AuditEntry
from signalbox.program import log
from signalbox.program.errors import Forbidden, SignalboxError


class Target(NamedTuple):
    """What is acted on: ``("model", "digits")``. thing: the object itself, for ownership rules.

    revokes: as :func:`authorize` has it.
    """

    kind: str
    name: str
    thing: object = None
    revokes: bool = False


@dataclass
class AuditedValues:
    """Values before and after the act, filled in by the service; JSON values only, never secrets."""

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


@contextmanager
def act(actor: Actor, what: Act, target: Target, *, reason: str = "") -> Iterator[AuditedValues]:
    """Check the right, open a transaction, run the body, write the audit row.

    A refusal or failure is written too, outside the rolled-back transaction.
    Raises :class:`Forbidden`, and whatever the body raises.
    """
    check(actor, what, target, reason=reason)
    change = AuditedValues()
    try:
        with transaction.atomic():
            yield change
            _write(actor, what, target, reason, change, AuditEntry.DONE)
    except SignalboxError as error:
        _write(actor, what, target, reason, change, AuditEntry.FAILED, error.public_message)
        raise
    log.info("act.done", act=what.value, actor=actor.name, kind=target.kind, target=target.name)


@contextmanager
def preparing(actor: Actor, what: Act, target: Target, *, reason: str = "") -> Iterator[None]:
    """Slow preparations, after :func:`check` and before the act; a refusal in them is written to the audit too.

    Raises what the body raises.
    """
    try:
        yield
    except SignalboxError as error:
        _write(actor, what, target, reason, AuditedValues(), AuditEntry.FAILED, error.public_message)
        raise


def check(actor: Actor, what: Act, target: Target, *, reason: str = "") -> None:
    """Check the permission alone, before slow preparations. A refusal is written to the audit."""
    try:
        authorize(actor, what, target.thing, revokes=target.revokes)
    except Forbidden as error:
        _write(actor, what, target, reason, AuditedValues(), AuditEntry.REFUSED, error.public_message)
        raise


def _write(
    actor: Actor, what: Act, target: Target, reason: str, change: AuditedValues, result: str, message: str = ""
) -> None:
    AuditEntry.objects.create(
        actor=actor.user,
        actor_name=actor.name,
        via=actor.via,
        address=actor.address,
        request_id=actor.request_id,
        act=what.value,
        target_kind=target.kind,
        target=target.name[:150],
        reason=reason[:200],
        before=change.before,
        after=change.after,
        result=result,
        message=message[:500],
    )
