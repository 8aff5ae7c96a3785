"""What the outbound program and the gateways tell of results that go out, read from NATS at each request."""

from collections import deque
from typing import Final

from console.asking import ask, decoded, documents
from signalbox.bus.client import Bus
from signalbox.program.errors import NotFound
from signalbox.wire import names, outboundnames
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import Batch, Delivery, HookState

MOST_ATTEMPTS: Final = 50
"""That one page of the log has."""
MOST_BATCHES: Final = 500
_WINDOW: Final = 1000
"""Messages at the end of the log that are looked through first; each further look takes eight times as many."""
_WIDER: Final = 8
_AT_ONCE: Final = 1000
_WHAT: Final = "results"


def states() -> dict[str, HookState]:
    """How deliveries go, by webhook. Raises :class:`Unavailable`."""
    return ask(_WHAT, lambda bus: documents(bus, Bucket.HOOK_STATES, HookState))


def state(hook: str) -> HookState | None:
    """How deliveries of one webhook go; None where there was none yet. Raises :class:`Unavailable`."""

    async def read(bus: Bus) -> HookState | None:
        found = await bus.direct_get(Bucket.HOOK_STATES.stream, names.key(Bucket.HOOK_STATES, names.token(hook)))
        return decoded(HookState, found) if found is not None else None

    return ask(_WHAT, read)


def attempts(hook: str) -> list[Delivery]:
    """The last attempts at deliveries of a webhook, the newest first. Raises :class:`Unavailable`."""
    return ask(_WHAT, lambda bus: _attempts(bus, hook))


def batches() -> list[tuple[str, Batch]]:
    """Batches by key, those that have not ended first, then the newest. Raises :class:`Unavailable`."""
    found = ask(_WHAT, lambda bus: documents(bus, Bucket.BATCHES, Batch))
    return sorted(found.items(), key=lambda one: (bool(one[1].ended_at), -one[1].created_at))[:MOST_BATCHES]


def batch(key: str) -> Batch:
    """One of them. Raises :class:`NotFound` and :class:`Unavailable`."""
    account, _, batch_id = key.partition(".")

    async def read(bus: Bus) -> Batch:
        subject = names.key(Bucket.BATCHES, outboundnames.batch_key(names.untoken(account), names.token(batch_id)))
        found = await bus.direct_get(Bucket.BATCHES.stream, subject) if batch_id else None
        document = decoded(Batch, found) if found is not None else None
        if document is None:
            raise NotFound(f"There is no batch {key[:100]!r}, or no longer.")
        return document

    return ask(_WHAT, read)


async def _attempts(bus: Bus, hook: str) -> list[Delivery]:
    """From windows at the end of the stream, each wider than the one before, until enough is found."""
    state = (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.DELIVERIES}"))["state"]
    first, last, window = state["first_seq"], state["last_seq"], _WINDOW
    while True:
        start = max(first, last - window + 1)
        found = await _from(bus, outboundnames.deliveries(hook), start)
        if len(found) >= MOST_ATTEMPTS or start <= first:
            return sorted(found, key=lambda one: -one.at)
        window *= _WIDER


async def _from(bus: Bus, subject: str, start: int) -> list[Delivery]:
    """The last of those from a sequence on."""
    kept: deque[Delivery] = deque(maxlen=MOST_ATTEMPTS)
    while True:
        asked = {"seq": start, "next_by_subj": subject, "batch": _AT_ONCE}
        page = await bus.direct_batch(Stream.DELIVERIES, asked)
        kept.extend(one for one in (decoded(Delivery, stored) for stored in page) if one is not None)
        if len(page) < _AT_ONCE:
            return list(kept)
        start = page[-1].seq + 1
