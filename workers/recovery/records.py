"""How long records of ended jobs stay in ``STATE``, and what has to go before they may.

``STATE`` is discard-new and its age is longer than any job waits, so the server never takes a record of an open job.
What has ended is removed here, the oldest first and never anything above the oldest open record: after
their time (a day), or after the least time that results are kept where the stream is getting full. Below that the
gateways accept nothing more. So no open record may stay old: a worker writes those of what it runs again
(:meth:`signalbox.jobs.commits.Commits.renew`), the reconciler those of jobs that no worker runs. Records of synchronous
calls go sooner, a slot at a time (:mod:`workers.recovery.shortlived`).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.wire.names import Stream
from workers.recovery.endedmessages import EndedMessages
from workers.recovery.heldends import Held, HeldEnds
from workers.recovery.walk import first_since

CROWDED: Final = 0.6
"""Of ``STATE``: above this they are kept no longer than they must be."""
_STEP: Final = 5_000
"""Sequence numbers removed at once; between two steps the server takes other writes."""


class RecordRetention:
    """Removes records of ended jobs. kept_s, least_s: how long they stay, and how long in any case.

    outlives_s: see :class:`EndedMessages`. ends: is told what goes unsent. clock: UTC seconds.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        kept_s: float,
        least_s: float,
        outlives_s: float,
        ends: HeldEnds,
        clock: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._kept_s = kept_s
        self._least_s = least_s
        self._clock = clock
        self._outlives_s = outlives_s
        self._ends = ends
        self.begin()

    def begin(self) -> None:
        """Forget what was looked at: another did this meanwhile, or the streams are others now."""
        self._left = EndedMessages(self._bus, outlives_s=self._outlives_s)

    async def turn(self, low: int, info: Mapping[str, Any], held: Held) -> int:
        """Remove what is due below ``low``, under which every job has ended. info: of ``STATE``, as the server told it.

        held: what is to wait all the same.

        Returns the sequence below which all is due, where the stream is getting full; else 0. Raises as
        :meth:`Bus.request_json`.
        """
        state = info["state"]
        most = info["config"].get("max_bytes", -1)
        is_crowded = 0 < CROWDED * most < state["bytes"]
        until = self._clock() - (self._least_s if is_crowded else self._kept_s)
        if not state["messages"] or unix_time(state["first_ts"]) >= until:
            return 0
        at = datetime.fromtimestamp(await self._left.remove(until), UTC)
        due = await first_since(self._bus, Stream.STATE, at)
        end = min(low, due)
        if held.is_watched and held.seq < end:
            await self._purge(state["first_seq"], held.seq)
            if held.since < until:  # what waits is not all younger than what goes
                end = min(end, await first_since(self._bus, Stream.STATE, datetime.fromtimestamp(held.since, UTC)))
            self._ends.lost(await self._purge(max(state["first_seq"], held.seq), end))
        else:
            await self._purge(state["first_seq"], end)
        return due if is_crowded else 0

    async def _purge(self, seq: int, end: int) -> int:
        """Remove everything below ``end``, the first of which lies at ``seq``; returns how many went."""
        purged = 0
        while seq < end:
            seq = min(seq + _STEP, end)
            answer = await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.STATE}", {"seq": seq})
            purged += answer.get("purged", 0)
        return purged
