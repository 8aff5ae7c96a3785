"""Acts on batches of files: gateways make them, the outbound program does them, and an operator may hold them up."""

from typing import Final

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act, check, preparing
from console.outbound import reading
from console.outbox import services as outbox
from console.outbox.batches import ENDED, Asked, require
from console.outbox.models import OutboxEntry
from signalbox.program.errors import Conflict
from signalbox.wire.outbound import Batch
from signalbox.wire.outboundnames import batch_key

__all__ = ["ENDED", "Asked", "steer"]

_REPORT_WITHIN_S: Final = 2.0
"""How long an answer waits to say whether it is done."""


def steer(actor: Actor, key: str, asked: Asked, *, reason: str = "") -> str:
    """Have a batch pause, go on (``run``) or be cancelled. Returns why NATS does not have it yet; empty once it does.

    Raises :class:`NotFound`, :class:`Conflict` where it has ended or that is asked already, :class:`Unavailable`.
    """
    target, wanted = Target("batch", key), {"asked": asked}
    check(actor, Act.BATCHES_STEER, target, asked=wanted, reason=reason)
    with preparing(actor, Act.BATCHES_STEER, target, asked=wanted, reason=reason):
        batch = reading.batch(key)
        require(batch, asked)
    with act(actor, Act.BATCHES_STEER, target, asked=wanted, reason=reason) as change:
        change.before = {"account": batch.account_id, "asked": batch.asked}
        change.after = {"account": batch.account_id, "asked": asked}
        entry = outbox.post(OutboxEntry(kind=OutboxEntry.BATCH, key=key_of(batch), body=asked))
    settled = outbox.wait_settled(entry.pk, timeout_s=_REPORT_WITHIN_S)
    if settled.published_at is not None and settled.last_error:
        raise Conflict(settled.last_error)
    return outbox.why_waiting(settled)


def key_of(batch: Batch) -> str:
    """Its key in NATS, and in addresses."""
    return batch_key(batch.account_id, batch.id)
