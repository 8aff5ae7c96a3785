"""Asks a batch of a file to go on, to pause or to end: its document is the gateway's, and written by several."""

import time
from typing import Final, Literal, get_args

from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.program.errors import Bug, Conflict, NotFound, StaleRevision
from signalbox.wire import names
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Bucket, Header
from signalbox.wire.outbound import Batch, BatchState

Asked = Literal["run", "pause", "cancel"]
ENDED: Final = frozenset({"completed", "failed", "cancelled", "expired"})
_RACES: Final = 20


async def ask(bus: Bus, key: str, wanted: str) -> None:
    """Write what is asked of the batch, unless it is asked already.

    Raises :class:`NotFound`, and :class:`Conflict` for one that has ended or is being cancelled.
    """
    asked = next((one for one in get_args(Asked) if one == wanted), None)
    if asked is None:
        raise Bug(f"Nothing of that name is asked of a batch: {wanted}.")
    subject = names.key(Bucket.BATCHES, key)
    for _ in range(_RACES):
        stored = await bus.leader_get(Bucket.BATCHES.stream, subject)
        if stored is None or not stored.data:
            raise NotFound("There is no such batch, or no longer.")
        batch = decode(Batch, stored.data)
        if batch.asked == asked:
            return
        require(batch, asked)
        state: BatchState = "cancelling" if asked == "cancel" else batch.state
        kept = stored.headers.get(Header.TTL, "").removesuffix("s")
        try:
            await bus.write(
                subject,
                encode(replace(batch, asked=asked, state=state, asked_at=time.time())),
                expect=stored.seq,
                ttl_s=int(kept) if kept.isdecimal() else None,
            )
        except StaleRevision:
            continue
        return
    raise Conflict(f"Lost {_RACES} races for the batch; it is asked again.")


def require(batch: Batch, asked: Asked) -> None:
    """Return if that can be asked of a batch now. Raises :class:`Conflict`."""
    if batch.state in ENDED:
        raise Conflict(f"The batch has ended already: {batch.state}.")
    if batch.asked == "cancel" or batch.state == "cancelling":
        raise Conflict("The batch is being cancelled already.")
    if batch.asked == asked:
        raise Conflict({"run": "The batch is not paused.", "pause": "The batch is paused already."}[asked])
