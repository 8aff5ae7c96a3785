"""Acts on one job as they are carried out on NATS: for a posting of the outbox, or for a job of a selection.

Each is idempotent: who does not know whether an earlier try arrived repeats it.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.jobs import deadletters, deletion
from signalbox.jobs.cancel import OPERATOR, cancel
from signalbox.jobs.change import change
from signalbox.jobs.deadletters import Letter
from signalbox.jobs.records import Found, Records
from signalbox.jobs.refusals import why_no_input
from signalbox.jobs.room import QueueRoom
from signalbox.program.errors import Conflict, NotFound
from signalbox.wire.messages import Record, State, decode
from signalbox.wire.names import Priority

ASKED: Final = "It was running: its holder is asked to stop it."
"""What came of the cancellation of a job that a worker has."""


class JobChange(msgspec.Struct, frozen=True):
    """What a waiting job is to have; None: as it is. deadline_at: UTC seconds."""

    priority: Priority | None = None
    deadline_at: float | None = None


class JobActs:
    """Acts on jobs, as an operator. clock: UTC seconds."""

    def __init__(self, bus: Bus, *, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self._records = Records(bus)
        self._room = QueueRoom(bus)

    async def cancel(self, job_id: str) -> str:
        """Cancel it; returns what is to be said of that, mostly nothing.

        Raises :class:`NotFound`, and :class:`Conflict` for a job that had ended otherwise.
        """
        found = await cancel(self._bus, self._records, await self._found(job_id), by=OPERATOR, clock=self._clock)
        record = found.record
        if not record.state.is_terminal:
            return ASKED
        if record.state is not State.CANCELLED or record.cancelled_by != OPERATOR:
            raise Conflict(f"The job has already ended: {record.state}.", state=record.state.value)
        return ""

    async def change(self, job_id: str, wanted: JobChange) -> None:
        """Change a waiting job. Raises :class:`NotFound` and as :func:`signalbox.jobs.change.change`."""
        await change(
            self._bus,
            self._records,
            await self._found(job_id),
            priority=wanted.priority,
            deadline_at=wanted.deadline_at,
            admit=self._room.admit,
        )

    async def delete(self, job_id: str, listed: Record | None = None) -> None:
        """Delete an ended job. listed: as the job list has it, where only that may be left of it.

        Raises :class:`NotFound` where nothing is left of it, and :class:`Conflict` for an open job.
        """
        found = await self._records.find(job_id)
        if found is None:
            found = await self._left(job_id, listed)
        await deletion.delete(self._records, found, clock=self._clock)

    async def redrive(self, job_id: str, *, after: str = "", version: int = 0, since: float = 0.0) -> str:
        """Run a dead letter's job again; returns the new job's id.

        version: of the model, to run it with; 0 = the one that it was accepted for. since: what was redriven before
        counts as somebody else's, UTC seconds. Raises :class:`Conflict` for that, and as
        :func:`signalbox.jobs.deadletters.redrive`.
        """
        if since:
            last = (await self._letter(job_id)).redriven
            if last is not None and last.at < since:
                at = datetime.fromtimestamp(last.at, UTC)
                raise Conflict(f"It was run again before, at {at:%Y-%m-%d %H:%M:%S} UTC, as job {last.job}.")
        return (await deadletters.redrive(self._bus, job_id, after=after, version=version)).job_id

    async def _letter(self, job_id: str) -> Letter:
        """Raises :class:`Conflict` that says why a job that is known has none."""
        try:
            return await deadletters.find(self._bus, job_id)
        except NotFound:
            record = (await self._found(job_id)).record
        if not record.state.is_terminal:
            raise Conflict(f"The job has not ended, it is {record.state}: nothing is to be run again.")
        raise Conflict(why_no_input(record.state, record.error.code if record.error else "", record.finished_at))

    async def discard(self, job_id: str) -> None:
        """Remove a dead letter for good. Raises :class:`NotFound`."""
        await deadletters.discard(self._bus, job_id)

    async def _found(self, job_id: str) -> Found:
        found = await self._records.find(job_id)
        if found is None or found.record.deleted_at:
            raise NotFound("NATS knows no such job, or no longer.")
        return found

    async def _left(self, job_id: str, listed: Record | None) -> Found:
        """An ended job of which there is no record any more."""
        try:
            left = deletion.of_letter(await deadletters.find(self._bus, job_id))
        except NotFound:
            left = None
        if left is None and listed is not None:
            left = Found(listed, 0)
        if left is None:
            raise NotFound("NATS knows no such job, or no longer.")
        return left


def read_record(body: str) -> Record | None:
    """The record that a posting carries; None where it carries none."""
    return decode(Record, body.encode()) if body else None
