"""Finds and cancels jobs for the account that owns them. A job of another account counts as not there."""

import time
from collections.abc import Callable
from typing import Final

from signalbox.bus.client import Bus
from signalbox.bus.majority import Majority
from signalbox.jobs.cancel import OWNER, cancel, withdraw
from signalbox.jobs.deletion import refusal
from signalbox.jobs.records import Found, Records
from signalbox.jobs.repair import expire
from signalbox.program.errors import Conflict, NoLongerKept, NotFound, SignalboxError, Unavailable
from signalbox.wire import jobids
from signalbox.wire.messages import Job, State
from signalbox.wire.names import Stream

_RACES: Final = 5
_VERSIONS: Final = frozenset("78")
"""Of the UUIDs that are ids of jobs, see :func:`signalbox.wire.jobids.new_job_id`."""
_NO_JOB: Final = "There is no such job, or it is not yours."


class OwnedJobs:
    """The records of jobs, for their owners. kept_s: age of a job at which its record has gone. wall: UTC clock, s."""

    def __init__(self, bus: Bus, records: Records, *, kept_s: float, wall: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._records = records
        self._majority = Majority(bus)
        self._wall = wall
        self._kept_s = kept_s

    async def close(self) -> None:
        """Wait for open questions to NATS. Idempotent."""
        await self._majority.close()

    async def find(self, job_id: str, account: str) -> Found:
        """The job of an owner. Raises as :meth:`known`, and :class:`NoLongerKept` for one that was deleted."""
        found = await self.known(job_id, account)
        if found.record.deleted_at:
            raise refusal(found.record)
        return found

    async def known(self, job_id: str, account: str) -> Found:
        """The job of an owner, or the tombstone of one that was deleted: the one place that checks ownership.

        Raises :class:`NotFound`, in the same words for an unknown, a malformed and a foreign id, and
        :class:`Unavailable` where a majority of NATS may know more. An id that is older than any record is
        :class:`NoLongerKept` for everybody, whether there ever was such a job or not.

        A job whose deadline passed in the queue is ended here, so that it ends also without workers.
        """
        if jobids.JOB_ID.match(job_id) is None:
            raise NotFound(_NO_JOB)
        for _ in range(_RACES):
            found = await self._records.find(job_id)
            if found is None or found.record.account_id != account:
                await self._majority.require(Stream.STATE, Stream.JOBS)
                raise self._unknown(job_id)
            is_overdue = found.record.state is State.QUEUED and (found.record.deadline_at <= self._wall())
            if not is_overdue:
                return found
            if (ended := await expire(self._bus, self._records, found, now=self._wall())) is not None:
                return ended
        raise Unavailable("The job changes too quickly to be read; ask again.", retry_after_s=1.0)

    def _unknown(self, job_id: str) -> SignalboxError:
        """The error for a job that is not there. An id of ours tells when it was given."""
        given_at = jobids.time_of_slot(jobids.slot_of(job_id))
        if job_id[14] not in _VERSIONS or self._wall() - given_at <= self._kept_s:
            return NotFound(_NO_JOB)
        day = time.strftime("%Y-%m-%d", time.gmtime(given_at))
        return NoLongerKept(
            f"The id is of {day}, and nothing is kept of jobs that are older than {self._kept_s / 86_400:.0f} days. "
            "Submit it again.",
            kept_s=self._kept_s,
        )

    async def may_be_forgotten(self, named_at: float, *, kept_s: float) -> bool:
        """Whether a job named at ``named_at``, now unknown, may have run and ended: it must not run again."""
        return await self._records.may_have_gone(named_at, now=self._wall(), kept_s=kept_s)

    async def cancel(self, job_id: str, account: str) -> Found:
        """Cancel a job for its owner. Raises as :func:`signalbox.jobs.cancel.cancel`.

        Raises :class:`NotFound` as :meth:`find`, and :class:`Conflict` when the job has ended otherwise.
        """
        found = await self.find(job_id, account)
        found = await cancel(self._bus, self._records, found, by=OWNER, clock=self._wall)
        state = found.record.state
        if state.is_terminal and state is not State.CANCELLED:
            raise Conflict(f"The job has already ended: {state}.", state=state.value)
        return found

    async def give_up(self, job: Job) -> None:
        """Cancel a job whose caller has left, if no worker has claimed it. Best effort: raises nothing of ours."""
        await withdraw(self._bus, self._records, job, now=self._wall())
