"""Cancelling jobs: a queued job ends at once, the holder of a running one is asked to stop it.

Both are compare-and-set on the record, where the first terminal state wins: a job reported as ``cancelled`` stays so.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from signalbox.bus.client import Bus
from signalbox.jobs import joblog, life
from signalbox.jobs.life import CANCELLED, OPERATOR, OWNER
from signalbox.jobs.records import Found, Records
from signalbox.program.errors import NotFound, SignalboxError, StaleRevision, Unavailable
from signalbox.wire import names
from signalbox.wire.messages import Job, State

__all__ = ["CANCELLED", "OPERATOR", "OWNER", "cancel", "withdraw"]

_RACES: Final = 20


async def cancel(bus: Bus, records: Records, found: Found, *, by: str, clock: Callable[[], float]) -> Found:
    """Cancel the job that was found; returns it as it stands then: cancelled, asked to stop, or ended otherwise.

    Idempotent. by: :data:`OWNER` or :data:`OPERATOR`. clock: UTC seconds. Raises :class:`NotFound` where the
    job has gone meanwhile, :class:`Unavailable`, and :class:`Ambiguous`.
    """
    for _ in range(_RACES):
        record = found.record
        if record.state.is_terminal or record.cancel_requested:
            return found
        if record.state is State.QUEUED:
            wanted = life.cancelled(record, now=clock(), by=by)
        else:
            wanted = life.cancel_asked(record, by=by)
        try:
            revision = await records.write(wanted, expect=found.revision)
        except StaleRevision as error:
            again = await records.find(record.id)
            if again is None:
                raise NotFound("The job is no longer known.") from error
            found = again
            continue
        if wanted.state.is_terminal:
            joblog.ended(wanted)
        else:
            joblog.step("job.cancel_asked", wanted)
        await bus.publish(names.cancel(record.id))
        return Found(wanted, revision)
    raise Unavailable("The job changes too quickly to be cancelled.", retry_after_s=1.0)


async def withdraw(bus: Bus, records: Records, job: Job, *, now: float) -> None:
    """Cancel a job whose caller has left, if no worker has claimed it. Best effort: raises nothing of ours."""
    record = life.cancelled(life.first_record(job, State.QUEUED), now=now)
    with suppress(SignalboxError):
        await records.write(record, expect=0)
        joblog.ended(record)
        await bus.publish(names.cancel(record.id))
