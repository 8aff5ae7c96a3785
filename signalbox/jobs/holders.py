"""Whether the lease is still there under which a record says that its job runs."""

from typing import Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.wire import names
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Lease, decode
from signalbox.wire.names import Bucket

_HELD: Final = "HELD"


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
