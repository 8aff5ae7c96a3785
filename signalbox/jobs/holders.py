"""Whether what runs a job is still there: its worker by presence, its lease by its record."""

from collections.abc import Iterable
from typing import Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.wire import names
from signalbox.wire.events import is_removal
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket
from signalbox.wire.workerdocs import Lease, Worker

_HELD: Final = "HELD"


def is_attended(worker: str, token: int, claimed_at: float | None, workers: Iterable[Worker]) -> bool:
    """Whether the worker that a running job's record names is there, and holds the lease that it claimed the job under.

    workers: presence. One that was written before the claim may not tell of the lease yet.
    """
    return any(one.id == worker and (one.token == token or one.beat_at < (claimed_at or 0.0)) for one in workers)


async def is_held(bus: Bus, gpu: str, token: int) -> bool:
    """Whether the lease of ``gpu`` shows this fencing token to its leader. Raises :class:`Unavailable`.

    Where it does not, the runner of that holder is dead, or dies before another enters the device, and what the holder
    still writes loses its compare-and-set once the job was claimed over. A lease that only a newer program can read
    counts as held.
    """
    stored = await bus.leader_get(Bucket.LEASES.stream, names.key(Bucket.LEASES, names.token(gpu)))
    if stored is None or not stored.data or is_removal(stored.headers):
        return False
    try:
        lease = decode(Lease, stored.data)
    except msgspec.MsgspecError:
        return True
    return lease.state == _HELD and (lease.token or stored.seq) == token
