"""A job's message in ``JOBS``: writing it, and nothing else, makes the job exist; it is removed after the job's end."""

from typing import Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.bus.stalls import BOUND, WHY
from signalbox.program.errors import Ambiguous, SignalboxError, StaleRevision
from signalbox.wire import names
from signalbox.wire.messages import Job, header
from signalbox.wire.names import PRIORITIES, Header, Stream

_REPEATS: Final = 2
GONE: Final = frozenset({10043, 10057})
"""The server's codes for deleting what is not there: within the stream, and before its first message."""


class Acceptance(NamedTuple):
    """A job that is durable. seq: of its message. is_new: False where the message was there before this call."""

    seq: int
    is_new: bool


async def submit(bus: Bus, job: Job, body: bytes = b"") -> Acceptance:
    """Write the job's message; when this returns it is durable. body: its inputs, where they are not stored apart.

    A write whose outcome is unknown is repeated, which is safe: the subject is the job's own, and it must be empty.
    Raises :class:`Ambiguous` (with ``job_id``) when even that does not tell. Every other error (:class:`QueueFull`,
    :class:`TooLarge`, :class:`Unavailable`) means that the job is certainly not accepted.
    """
    writer = bus.grouped(Stream.JOBS)
    subject = names.job(job.model, job.priority, job.account_id, job.id)
    headers: dict[str, str] = {Header.JOB: header(job)}
    for repeat in range(_REPEATS + 1):
        try:
            return Acceptance(await writer.write(subject, body, headers=headers, expect=0), is_new=True)
        except StaleRevision as error:
            # Only this job is written to its subject: an earlier try arrived after all.
            if error.last:
                return Acceptance(error.last, is_new=repeat > 0)
            raise unknown(job, error) from error
        except Ambiguous as error:
            if repeat == _REPEATS:
                raise unknown(job, error) from error
        except SignalboxError as error:
            if repeat == 0:
                raise
            # This try was certainly not stored; the one before it perhaps was.
            raise unknown(job, error) from error
    raise AssertionError  # pragma: no cover  every turn returns or raises


async def remove(bus: Bus, seq: int) -> None:
    """Remove one message of ``JOBS`` whose job has ended, or that is none. Idempotent."""
    try:
        await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{Stream.JOBS}", {"seq": seq, "no_erase": True})
    except SignalboxError as error:
        if error.facts.get("err_code") not in GONE:
            raise


async def remove_below(bus: Bus, job: Job, seq: int) -> None:
    """Remove what a raised job was raised from: its messages in lower classes, stored before this one at ``seq``.

    The job stays in the queue by this one, so it need not have ended. Idempotent; what it leaves goes after the end.
    """
    for priority in PRIORITIES[PRIORITIES.index(job.priority) + 1 :]:
        found = await bus.leader_get(Stream.JOBS, names.job(job.model, priority, job.account_id, job.id))
        if found is not None and found.seq < seq:
            await remove(bus, found.seq)


def unknown(job: Job, cause: SignalboxError) -> Ambiguous:
    """The error for a job of which it is not known whether it was accepted."""
    why = f" {WHY}" if cause.facts.get("bound") == BOUND else ""
    return Ambiguous(
        f"It is not known whether the job was accepted; ask for it by its id.{why}", retry_after_s=2.0, job_id=job.id
    )
