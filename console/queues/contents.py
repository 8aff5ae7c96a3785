"""Acts on what is in a queue. The outbound program does them at once, or says why not: nothing of it is put off, for
what an operator saw in a queue may be gone later."""

from typing import Final

import msgspec
from msgspec.structs import replace

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.asking import ask
from console.audit.acts import Target, act, check, preparing
from console.queues import services
from console.queues.models import Queue
from signalbox.bus.client import Bus
from signalbox.program.errors import Ambiguous, Conflict, InvalidRequest, Unavailable
from signalbox.wire import messages, queuenames
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import QueueAsk, QueueDone

MOST_REDRIVEN: Final = 1000
"""By one act: each is stored anew, and an operator waits for it."""
MOST_PURGED: Final = 2**31 - 1
_DONE_S: Final = 20.0
_LOOK: Final = "Look at the queue before you repeat it."


def purge(actor: Actor, name: str, side: Side, items: int, *, is_rear: bool = False, reason: str = "") -> int:
    """Delete the oldest items of a side, or of its rear queue, for every group. Returns how many they were.

    items: how many the operator was told that there are; what has come since stays. Raises :class:`NotFound`,
    :class:`InvalidRequest`, :class:`Unavailable` where nobody does it, :class:`Ambiguous` where it may have been done,
    and :class:`Conflict` with what it ended on.
    """
    target, asked = Target("queue", name), {"side": side, "is_rear": is_rear, "items": items}
    check(actor, Act.QUEUES_PURGE, target, asked=asked, reason=reason)
    with preparing(actor, Act.QUEUES_PURGE, target, asked=asked, reason=reason):
        queue = services.find(name)
        if not 1 <= items <= MOST_PURGED:
            raise InvalidRequest("items: how many there are that shall go, at least 1.")
        done = _done(queue, QueueAsk(act="purge", side=side, is_rear=is_rear, most=items))
    with act(actor, Act.QUEUES_PURGE, target, asked=asked, reason=reason) as change:
        change.after = asked | {"items": done}
    return done


def redrive(actor: Actor, name: str, side: Side, *, most: int = MOST_REDRIVEN, reason: str = "") -> int:
    """Put items of a side's rear queue back into it, the oldest first. Returns how many they were.

    Raises as :func:`purge` does.
    """
    target, asked = Target("queue", name), {"side": side, "items": most}
    check(actor, Act.QUEUES_REDRIVE, target, asked=asked, reason=reason)
    with preparing(actor, Act.QUEUES_REDRIVE, target, asked=asked, reason=reason):
        queue = services.find(name)
        if not 1 <= most <= MOST_REDRIVEN:
            raise InvalidRequest(f"most: 1 to {MOST_REDRIVEN}.")
        done = _done(queue, QueueAsk(act="redrive", side=side, most=most))
    with act(actor, Act.QUEUES_REDRIVE, target, asked=asked, reason=reason) as change:
        change.after = asked | {"items": done}
    return done


def reopen(actor: Actor, name: str, side: Side, *, reason: str = "") -> None:
    """Have a side whose stream was ended take items again.

    Raises :class:`NotFound`, :class:`Conflict` where it has not ended, and as :func:`purge` does.
    """
    target, asked = Target("queue", name), {"side": side, "state": "open"}
    check(actor, Act.QUEUES_REDRIVE, target, asked=asked, reason=reason)
    with preparing(actor, Act.QUEUES_REDRIVE, target, asked=asked, reason=reason):
        queue = services.find(name)
        if not _done(queue, QueueAsk(act="reopen", side=side)):
            raise Conflict(f"The {side} has not ended, so it takes items.")
    with act(actor, Act.QUEUES_REDRIVE, target, asked=asked, reason=reason):
        pass


def _done(queue: Queue, asked: QueueAsk) -> int:
    asked = replace(asked, created_at=queue.created_at.timestamp())
    done = ask("queues", lambda bus: _asked(bus, queue.name, asked))
    if done.error:
        before = f" after {done.items} items" if done.items else ""
        raise Conflict(f"It ended{before}: {done.error}")
    return done.items


async def _asked(bus: Bus, name: str, asked: QueueAsk) -> QueueDone:
    try:
        _, body = await bus.request(
            queuenames.ask_queue(name), messages.encode(asked), timeout_s=_DONE_S, is_write=True
        )
        return messages.decode(QueueDone, body)
    except Ambiguous as error:
        raise Ambiguous(
            "The outbound program has not answered in time. Look at the queue before you repeat it."
        ) from error
    except msgspec.MsgspecError as error:
        raise Ambiguous(
            "The outbound program is of another release. Look at the queue before you repeat it."
        ) from error
    except Unavailable as error:
        if not bus.is_connected:
            raise
        raise Unavailable("No outbound program runs, which does this. Start it, then repeat this.") from error
