"""Turns a request that may be served into a durable job: its idempotency entry, its class, its one message."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway_plugin.admission.idempotency import HEADER as IDEMPOTENCY_KEY
from gateway_plugin.admission.idempotency import Idempotency, IdempotencyEntry, digest_of
from gateway_plugin.admission.later import DelayedAdmission, Place
from gateway_plugin.admission.queues import QueueAdmission
from gateway_plugin.admission.submission import SubmitOptions, Submitter
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.request import Request
from signalbox.jobs import joblog
from signalbox.jobs.records import Found
from signalbox.program import metrics
from signalbox.program.errors import LimitExceeded, SignalboxError
from signalbox.program.tasks import TaskGroup
from signalbox.wire.keydocs import ApiKey, Share
from signalbox.wire.messages import Job
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Priority

_RETRY_AFTER_S: Final = 2.0
_TRACE: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")

_WRITES: Final = 64
"""Of many jobs so many are written at once: those that wait for the same stream go in one group."""

ACCEPTED = metrics.counter("jobs_accepted", "Jobs accepted durably by a gateway plugin.", "model")


class Submission(msgspec.Struct, frozen=True):
    """A job that may be written. options: as asked; the job's class may be another. idem: None without a key.

    share: of its account. place: of a delayed one, to be left however it ends.
    """

    job: Job
    frame: bytes
    options: SubmitOptions
    idem: IdempotencyEntry | None
    share: Share = Share()
    place: Place = Place()


class Acceptance:
    """Admits and writes jobs.

    instance: id of this plugin process, to which ends of jobs are replied. check: raises where no job can be stored.
    """

    def __init__(
        self,
        submitter: Submitter,
        admission: QueueAdmission,
        later: DelayedAdmission,
        idempotency: Idempotency,
        *,
        instance: str,
        check: Callable[[], None],
    ) -> None:
        self._check = check
        self._submitter = submitter
        self._admission = admission
        self._later = later
        self._idempotency = idempotency
        self._instance = instance

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._admission.close()
        await self._later.close()
        await self._submitter.close()
        await self._idempotency.close()

    async def look_up(self, request: Request, key: ApiKey, target: Iterable[object]) -> IdempotencyEntry | None:
        """The entry of the request's Idempotency-Key; None if it has no such header. target: what its path says."""
        if (name := request.headers.get(IDEMPOTENCY_KEY)) is None:
            return None
        return await self._idempotency.look_up(key, name, _digest(request, target))

    async def look_up_many(
        self, request: Request, key: ApiKey, target: Iterable[object], number: int
    ) -> tuple[IdempotencyEntry | None, dict[int, Found | SignalboxError]]:
        """:meth:`look_up` for many jobs, see :meth:`Idempotency.look_up_many`."""
        if (name := request.headers.get(IDEMPOTENCY_KEY)) is None:
            return None, {}
        return await self._idempotency.look_up_many(key, name, _digest(request, target), number)

    async def admit(
        self,
        headers: Mapping[str, str],
        key: ApiKey,
        ready: PreparedVersion,
        inputs: DecodedInputs,
        options: SubmitOptions,
        idem: IdempotencyEntry | None,
        *,
        is_waiting: bool,
        is_short_lived: bool = False,
    ) -> Submission:
        """The job, in the class it goes into, but not yet written. Raises as ``check``, as
        :meth:`QueueAdmission.admit` or, of a delayed job, :class:`DelayedAdmission`, and as
        :meth:`Submitter.require_room` where there is no room for its result.

        What an earlier try was named for stands: in another class it would be another message, and run twice.
        """
        self._check()
        options = self._later.settled(options, ready.model)
        await self._submitter.require_room(key.account_id, key.share.result_bytes)
        named = idem.priority if idem is not None and idem.revision else None
        place = Place()
        if options.not_before:
            priority, place = await self._later.admit(ready.model.name, key.account_id, options.priority, named=named)
        else:
            priority = await self._admission.admit(ready.model, key.account_id, options.priority, named=named)
        job = self._submitter.job(
            key,
            ready,
            inputs,
            options if priority == options.priority else options._replace(priority=priority),
            trace=trace_of(headers),
            waiter=self._instance if is_waiting else "",
            job_id=idem.job_id if idem is not None else "",
            is_short_lived=is_short_lived,
        )
        if idem is not None:
            idem = idem._replace(priority=priority)
        return Submission(job, inputs.frame, options, idem, key.share, place)

    async def admit_raised(self, model: Model, account: str, priority: Priority) -> None:
        """Count a job that waits into a higher class too. Raises as :meth:`QueueAdmission.admit`, and
        :class:`LimitExceeded` where its account has its share of that class."""
        self._check()
        if await self._admission.admit(model, account, priority) != priority:
            raise LimitExceeded(
                f'Your account has its share of the jobs that wait at "{priority}". Nothing was changed: raise the job '
                "when some of them have run.",
                retry_after_s=_RETRY_AFTER_S,
                bound="priority",
            )

    async def write_again(self, job: Job, frame: bytes, model: Model, share: Share) -> None:
        """Make a job durable that repeats an earlier one, within the bounds of any other."""
        self._check()
        await self._submitter.require_room(job.account_id, share.result_bytes)
        priority = await self._admission.admit(model, job.account_id, job.priority)
        job = replace(job, priority=priority)
        seq = await self._submitter.accept(job, frame, share_bytes=share.stored_bytes)
        ACCEPTED.labels(job.model).inc()
        joblog.accepted(job, seq)

    async def write(self, submission: Submission) -> int | None:
        """Make the job durable; returns its sequence in ``JOBS``, None of a delayed one.

        Raises as :meth:`Submitter.accept`.
        """
        job, idem, share_bytes = submission.job, submission.idem, submission.share.stored_bytes
        if idem is None:
            seq = await self._submitter.accept(job, submission.frame, share_bytes=share_bytes)
        else:
            idem = await self._idempotency.hold(idem, submission.share.idempotency_keys)
            try:
                seq = await self._submitter.accept(job, submission.frame, share_bytes=share_bytes)
            except SignalboxError:
                await self._idempotency.release(idem)
                raise
        submission.place.leave()
        ACCEPTED.labels(job.model).inc()
        joblog.accepted(job, seq)
        return seq

    async def write_many(
        self, submissions: Mapping[int, Submission], idem: IdempotencyEntry | None, share: Share, *, is_whole: bool
    ) -> dict[int, int | SignalboxError | None]:
        """Make jobs durable, some at a time and in their order; of each what :meth:`write` returns or raises.

        idem: names them durably before the first one is written. is_whole: whether these are all that its call has
        left. Raises as :meth:`Idempotency.hold`.
        """
        if not submissions:
            return {}
        if idem is not None:
            idem = await self._idempotency.hold(idem, share.idempotency_keys)
        written: dict[int, int | SignalboxError | None] = {}
        left = iter(submissions.items())

        async def write() -> None:
            for number, submission in left:
                try:
                    written[number] = await self.write(submission)
                except SignalboxError as error:
                    written[number] = error

        async with TaskGroup() as group:
            for _ in range(_WRITES):
                group.create_task(write())
        if idem is not None and not (is_whole and all(not isinstance(one, SignalboxError) for one in written.values())):
            await self._idempotency.release(idem)
        return written


def _digest(request: Request, target: Iterable[object]) -> str:
    encoding = request.headers.get("Content-Encoding", "")
    return digest_of(*map(str, target), encoding, body=request.raw_body)


def trace_of(headers: Mapping[str, str]) -> str:
    """A well-formed ``traceparent``, else nothing."""
    text = headers.get("Traceparent", "")
    return text if text and _TRACE.match(text) else ""
