"""Removes messages of ended jobs that are still in ``JOBS``, before the records that tell of their end go.

Such a message is left where it came late, after :mod:`workers.recovery.removal` had looked at its slot. Without its
record the next worker would run the job again. A message is older than the end of
its job, so only messages stored before an instant matter to the records stored before it.

A removed message, whichever program removed it, may still be in flight at a worker. That worker claims by "there is no
record yet", which is true again once the record is removed.
So a record outlives its message by twice ``trusted_s``:

- The message was in the queue when it was delivered. A worker claims from a delivery, or from having seen the message,
  for ``trusted_s`` and no longer; then it looks for the message, and after that for the record, anew
  (:meth:`signalbox.jobs.commits.Commits.refresh`). Neither there: the job has ended.
- The other ``trusted_s`` is for a write that is on its way, and for clocks. A worker that sleeps longer with a write
  in its socket has lost lease and connection.

Every other program that writes a first record (a gateway that cancels or changes, the reconciler) has just seen the
message too.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from signalbox.bus.client import Bus, Delivery, Stored
from signalbox.jobs.message import remove
from signalbox.wire import names
from signalbox.wire.messages import Record, decode
from signalbox.wire.names import Header, Stream
from workers.recovery.queued import walk_jobs

MAX_CHECKED: Final = 5_000
"""Messages of ``JOBS`` whose records are looked up in one turn."""
MAX_READ: Final = 20_000
"""Messages of ``JOBS`` read in one turn."""
_IN_FLIGHT: Final = 16
_CLOCKS_S: Final = 60.0
"""The two streams may be led by nodes whose clocks differ so much. A job that is raised just before its end may get a
message some seconds after it (:mod:`signalbox.jobs.change`)."""


def _any(_job_id: str) -> bool:
    return True


class EndedMessages:
    """A round looks at each message once, over as many turns as that takes.

    outlives_s: how much longer a record is to stay than its message. fits: whose records are about to go.
    """

    def __init__(self, bus: Bus, *, outlives_s: float, fits: Callable[[str], object] = _any) -> None:
        self._bus = bus
        self._outlives_s = outlives_s
        self._fits = fits
        self._loop = asyncio.get_running_loop()
        self._gone: deque[tuple[float, float]] = deque()
        """Up to which instant no message was left, and when that was found."""
        self._seq = 0
        self._goal = 0.0
        self._done = 0.0

    async def remove(self, until: float) -> float:
        """Look at the next messages. Returns up to which instant none has been left for a while; ``until`` at most."""
        if not self._seq:
            self._seq, self._goal = 1, until
        found: list[tuple[int, str]] = []

        def visit(message: Delivery | Stored) -> bool:
            if message.time >= self._goal + _CLOCKS_S or len(found) >= MAX_CHECKED:
                return False
            job_id = names.job_of(message.subject)
            if self._fits(job_id):
                found.append((message.seq, job_id))
            return True

        jobs = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        self._seq = await walk_jobs(self._bus, jobs, self._seq, MAX_READ, visit)
        for start in range(0, len(found), _IN_FLIGHT):
            group = found[start : start + _IN_FLIGHT]
            await asyncio.gather(*(self._remove_if_ended(*message) for message in group))
        reached = await self._next_time() - _CLOCKS_S
        if reached >= self._goal:
            self._seq = 0  # the next turn begins a round
        now_s = self._loop.time()
        self._gone.append((now_s, min(reached, self._goal)))
        while self._gone and self._gone[0][0] <= now_s - self._outlives_s:
            self._done = max(self._done, self._gone.popleft()[1])
        return min(self._done, until)

    async def _remove_if_ended(self, seq: int, job_id: str) -> None:
        stored = await self._bus.direct_get(Stream.STATE, names.state(job_id))
        if stored is None:
            return
        try:
            record = decode(Record, stored.headers[Header.RECORD])
        except (KeyError, msgspec.MsgspecError):
            return  # a newer program's: its record stays
        if record.state.is_terminal and stored.time < self._goal:
            await remove(self._bus, seq)

    async def _next_time(self) -> float:
        """When the first message that was not looked at was stored."""
        following = await self._bus.leader_next(Stream.JOBS, self._seq)
        return following.time if following is not None else math.inf
