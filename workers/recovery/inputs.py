"""Removes the inputs that no sweep removed: their worker died first, nobody ran their job, or it was never queued.

A part of the reconciler's turn. It reads the headers of ``INPUTS`` in a circle and asks for the record of each input's
job. An input goes where the record says that the job has ended. It also goes an hour after it was stored where there is
neither record nor message in ``JOBS``: then its acceptance never came to an end. Only the chunks that were read go, so
that a caller who tries the same submission again meanwhile loses nothing.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from signalbox import log, names
from signalbox.bus import Bus, Delivery
from signalbox.errors import NewerVersion
from signalbox.jobs import inputs
from signalbox.names import Header, Stream
from signalbox.records import Records
from workers import gauges
from workers.walk import walk

ORPHANED_S: Final = 3600.0
"""Without a job for so long, an input belongs to none. A gateway queues a job within seconds of storing its input."""
MAX_READ: Final = 20_000
"""Headers read in one turn."""
MAX_LOOKS: Final = 500
"""Inputs whose jobs are looked up in one turn."""


class _Input(NamedTuple):
    """An input as read. last_seq, stored_at: of its last chunk."""

    last_seq: int
    stored_at: float
    queued_as: str


class Inputs:
    """Where the reconciler stands in ``INPUTS``. settled_s: a younger input is its worker's business."""

    def __init__(
        self, bus: Bus, records: Records, *, settled_s: float, clock: Callable[[], float]
    ) -> None:
        self._bus = bus
        self._records = records
        self._settled_s = settled_s
        self._clock = clock
        self._seq = 0

    async def turn(self) -> None:
        """Read on and remove what is to be removed. Raises as :meth:`Bus.request_json`."""
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}")
        if not info["state"]["messages"]:
            self._seq = 0
            return
        found: dict[str, _Input] = {}
        before = self._clock() - self._settled_s

        def look(delivery: Delivery) -> bool:
            if delivery.time > before or (
                len(found) >= MAX_LOOKS and delivery.subject not in found
            ):
                return False
            queued_as = delivery.headers.get(Header.QUEUED_AS, "")
            found[delivery.subject] = _Input(delivery.seq, delivery.time, queued_as)
            return True

        after = await walk(self._bus, Stream.INPUTS, self._seq, MAX_READ, look)
        for subject, each in found.items():
            if await self._is_over(names.job_of_input(subject), each):
                await inputs.purge(self._bus, subject, below=each.last_seq + 1)
                gauges.INPUTS_REMOVED.inc()
        is_at_end = after > info["state"]["last_seq"] or not found
        self._seq = 0 if is_at_end else after

    async def _is_over(self, job_id: str, each: _Input) -> bool:
        """Whether nothing will ask for this input any more."""
        try:
            found = await self._records.read(job_id)
            if found is None and self._clock() - each.stored_at > ORPHANED_S:
                if await self._bus.leader_get(Stream.JOBS, each.queued_as) is not None:
                    return False
                # Claimed, ended and removed from the queue between the two reads: then there is a record now.
                found = await self._records.read(job_id)
                if found is None:
                    log.warning("reconciler.input_without_job", job=job_id)
                    return True
        except NewerVersion:
            return False
        return found is not None and found[0].state.is_terminal
