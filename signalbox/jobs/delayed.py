"""Delayed jobs: accepted now, queued when their time has come (``not_before``).

Until then such a job is a ``queued`` record in ``STATE`` and its input in ``INPUTS``: it has no message in ``JOBS``.
The worker that reconciles queues it (:mod:`workers.recovery.delayed`).
"""

from typing import Final

from signalbox.bus.client import Bus
from signalbox.jobs import life
from signalbox.jobs.message import unknown
from signalbox.jobs.records import Records
from signalbox.program.errors import Ambiguous, StaleRevision
from signalbox.wire import names
from signalbox.wire.messages import Job, Record, State

SOON_S: Final = 30.0
"""Seconds; of a job that is due sooner the gateway tells the worker that reconciles: ``STATE`` is read each few
seconds. Of a later one it tells when: hosts start a worker then, if there is none."""


def is_delayed(record: Record) -> bool:
    """Whether no worker has had the job and it may be without a message in ``JOBS``, also once its time has come."""
    return record.not_before > 0 and record.state is State.QUEUED and not record.attempt


async def accept(bus: Bus, records: Records, job: Job, *, now: float) -> None:
    """Write the record of a delayed job, whose input is stored; when this returns it is durable. now: UTC seconds.

    Idempotent: only this job is written to its subject. Raises :class:`Unavailable`, which means that the job is
    certainly not accepted, and :class:`Ambiguous` (with ``job_id``).
    """
    try:
        await records.write(life.first_record(job, State.QUEUED), expect=0)
    except StaleRevision:
        return  # an earlier try arrived after all
    except Ambiguous as error:
        raise unknown(job, error) from error
    if bus.is_connected:
        bus.send(names.delayed(job.id), b"", b"", b"" if job.not_before - now < SOON_S else b"%.3f" % job.not_before)
