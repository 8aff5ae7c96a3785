"""How long records of ended jobs stay in ``STATE``, and what has to go before they may.

``STATE`` is discard-new and its age is longer than any job waits, so the server never takes a record of an open job.
What has ended is removed here, the oldest first and never anything above the oldest open record: after a day, or after
the least time that results are kept where the stream is getting full. Below that the gateways accept nothing more.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from signalbox import names
from signalbox.answers import unix_time
from signalbox.bus import Bus, Delivery
from signalbox.errors import NotFound
from signalbox.messages import Record, decode
from signalbox.names import Header, Stream
from workers.sweep import remove
from workers.walk import first_since, walk

KEPT_S: Final = 86_400.0
"""How long records and their results are kept while there is room."""
CROWDED: Final = 0.6
"""Of ``STATE``: above this they are kept no longer than they must be."""
_STEP: Final = 5_000
"""Sequence numbers removed at once; between two steps the server takes other writes."""
_IN_FLIGHT: Final = 16
MAX_LOOKS: Final = 5_000
"""Messages of ``JOBS`` whose records are looked up in one turn."""
_CLOCKS_S: Final = 60.0
"""The two streams may be led by nodes whose clocks differ so much."""


class Retention:
    """Removes records of ended jobs. least_s: how long they stay in any case. clock: UTC seconds."""

    def __init__(self, bus: Bus, *, least_s: float, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._least_s = least_s
        self._clock = clock
        self._left = _Leftovers(bus)

    def begin(self) -> None:
        """Forget what was looked at: another did this meanwhile, or the streams are others now."""
        self._left = _Leftovers(self._bus)

    async def turn(self, low: int, info: Mapping[str, Any]) -> int:
        """Remove what is due below ``low``, under which every job has ended. info: of ``STATE``, as the server told it.

        Returns the sequence below which all is due, where the stream is getting full; else 0. Raises as
        :meth:`Bus.request_json`.
        """
        state = info["state"]
        most = info["config"].get("max_bytes", -1)
        is_crowded = 0 < CROWDED * most < state["bytes"]
        until = self._clock() - (self._least_s if is_crowded else KEPT_S)
        if not state["messages"] or unix_time(state["first_ts"]) >= until:
            return 0
        at = datetime.fromtimestamp(await self._left.remove(until), UTC)
        due = await first_since(self._bus, Stream.STATE, at)
        end = min(low, due)
        seq = state["first_seq"]
        while seq < end:
            seq = min(seq + _STEP, end)
            await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.STATE}", {"seq": seq})
        return due if is_crowded else 0


class _Leftovers:
    """Removes messages of ended jobs that are still in ``JOBS``, before the records that tell of their end go.

    They are there where a job was acknowledged above an older one that was given back, or never was, as its worker
    died. A message is older than the end of its job. So those stored before an instant are all that matter to the
    records stored before it. A round looks at each of them once, over as many turns as that takes.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._seq = 0
        self._goal = 0.0
        self._done = 0.0

    async def remove(self, until: float) -> float:
        """Look at the next messages. Returns up to which instant none is left; ``until`` at most."""
        if not self._seq:
            self._seq, self._goal = 1, until
        found: list[tuple[int, str]] = []

        def look(delivery: Delivery) -> bool:
            if delivery.time >= self._goal + _CLOCKS_S:
                return False
            found.append((delivery.seq, delivery.subject.rpartition(".")[2]))
            return True

        self._seq = await walk(self._bus, Stream.JOBS, self._seq, MAX_LOOKS, look)
        for start in range(0, len(found), _IN_FLIGHT):
            group = found[start : start + _IN_FLIGHT]
            await asyncio.gather(*(self._remove_if_ended(*message) for message in group))
        reached = await self._next_time() - _CLOCKS_S
        if reached >= self._goal:
            self._seq = 0  # the next turn begins a round
        self._done = max(self._done, min(reached, self._goal))
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
        ask = {"seq": self._seq, "next_by_subj": "jobs.>"}
        try:
            answer = await self._bus.request_json(f"$JS.API.STREAM.MSG.GET.{Stream.JOBS}", ask)
        except NotFound:
            return math.inf
        return unix_time(answer["message"]["time"])


async def take_out(bus: Bus, subjects: Sequence[str]) -> None:
    """Remove the messages of cancelled jobs from ``JOBS``: once the record is gone nothing would tell a worker."""
    for start in range(0, len(subjects), _IN_FLIGHT):
        group = subjects[start : start + _IN_FLIGHT]
        await asyncio.gather(*(_take_out(bus, subject) for subject in group))


async def _take_out(bus: Bus, subject: str) -> None:
    found = await bus.leader_get(Stream.JOBS, subject)
    if found is not None:
        await remove(bus, found.seq)
