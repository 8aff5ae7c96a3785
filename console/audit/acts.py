"""The one way to change something: permission, change and audit row in one transaction."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from django.db import transaction

from console.accounts.acts import Act
from console.accounts.rights import Actor, authorize
from console.audit.models import AuditEntry
from signalbox.program import log
from signalbox.program.errors import Forbidden, SignalboxError

_MOST_LETTERS: Final = 500
_MOST_PARTS: Final = 50
"""Kept of one value that a refused or failed act asked for."""


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
    """Values before and after the act, corrected and completed by the service; JSON values only, never secrets.

    after: what was asked, until the service knows better.
    """

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


@contextmanager
def act(
    actor: Actor, what: Act, target: Target, *, asked: Mapping[str, Any] | None = None, reason: str = ""
) -> Iterator[AuditedValues]:
    """Check the right, open a transaction, run the body, write the audit row.

    A refusal or failure is written too, outside the rolled-back transaction: with the values that were ``asked``
    for (JSON values, never secrets) and, as far as the body got, those from before.
    Raises :class:`Forbidden`, and whatever the body raises.
    """
    check(actor, what, target, asked=asked, reason=reason)
    change = AuditedValues(after=dict(asked or {}))
    try:
        with transaction.atomic():
            yield change
            _write(actor, what, target, reason, change, AuditEntry.DONE)
    except SignalboxError as error:
        failed = AuditedValues(change.before, _bounded(asked))
        _write(actor, what, target, reason, failed, AuditEntry.FAILED, error.public_message)
        raise
    log.info("act.done", act=what.value, actor=actor.name, kind=target.kind, target=target.name)


@contextmanager
def preparing(
    actor: Actor, what: Act, target: Target, *, asked: Mapping[str, Any] | None = None, reason: str = ""
) -> Iterator[None]:
    """Slow preparations, after :func:`check` and before the act; a refusal in them is written to the audit too.

    Raises what the body raises.
    """
    try:
        yield
    except SignalboxError as error:
        failed = AuditedValues(after=_bounded(asked))
        _write(actor, what, target, reason, failed, AuditEntry.FAILED, error.public_message)
        raise


def check(actor: Actor, what: Act, target: Target, *, asked: Mapping[str, Any] | None = None, reason: str = "") -> None:
    """Check the permission alone, before slow preparations. A refusal is written to the audit."""
    try:
        authorize(actor, what, target.thing, revokes=target.revokes, place=(target.kind, target.name))
    except Forbidden as error:
        refused = AuditedValues(after=_bounded(asked))
        _write(actor, what, target, reason, refused, AuditEntry.REFUSED, error.public_message)
        raise


def _bounded(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was asked, cut to what an audit keeps of it: nobody has judged these values."""
    return {_text(name): _kept(value) for name, value in list((asked or {}).items())[:_MOST_PARTS]}


def _kept(value: Any) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        rest = len(value) - _MOST_PARTS
        return [_kept(part) for part in value[:_MOST_PARTS]] + ([f"… {rest} more"] if rest > 0 else [])
    return _text(value)


def _text(value: Any) -> str:
    return str(value)[:_MOST_LETTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")  # PostgreSQL keeps no NUL


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
        target=_text(target.name)[:150],
        reason=reason[:200],
        before=change.before,
        after=change.after,
        result=result,
        message=_text(message),
    )
