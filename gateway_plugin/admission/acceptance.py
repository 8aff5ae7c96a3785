"""Turns a request that may be served into a durable job: its idempotency entry, its class, its one message."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from gateway_plugin.admission.idempotency import HEADER as IDEMPOTENCY_KEY
from gateway_plugin.admission.idempotency import Idempotency, IdempotencyEntry, digest_of
from gateway_plugin.admission.queues import QueueAdmission
from gateway_plugin.admission.submission import SubmitOptions, Submitter
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.request import Request
from signalbox.jobs import joblog
from signalbox.program import metrics
from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import ApiKey, Job, Share

_TRACE: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")

ACCEPTED = metrics.counter("jobs_accepted", "Jobs accepted durably by a gateway plugin.", "model")


class Submission(msgspec.Struct, frozen=True):
    """A job that may be written. options: as asked; the job's class may be another. idem: None without a key.

    share: of its account.
    """

    job: Job
    frame: bytes
    options: SubmitOptions
    idem: IdempotencyEntry | None
    share: Share = Share()


class Acceptance:
    """Admits and writes jobs.

    instance: id of this plugin process, to which ends of jobs are replied. check: raises where no job can be stored.
    """

    def __init__(
        self,
        submitter: Submitter,
        admission: QueueAdmission,
        idempotency: Idempotency,
        *,
        instance: str,
        check: Callable[[], None],
    ) -> None:
        self._check = check
        self._submitter = submitter
        self._admission = admission
        self._idempotency = idempotency
        self._instance = instance
        self._accepted: dict[str, Any] = {}

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._admission.close()
        await self._submitter.close()
        await self._idempotency.close()

    async def look_up(self, request: Request, key: ApiKey, target: Iterable[object]) -> IdempotencyEntry | None:
        """The entry of the request's Idempotency-Key; None if it has no such header. target: what its path says."""
        headers = request.headers
        if IDEMPOTENCY_KEY not in headers:
            return None
        encoding = headers.get("Content-Encoding", "")
        digest = digest_of(*map(str, target), encoding, body=request.raw_body)
        return await self._idempotency.look_up(key, headers[IDEMPOTENCY_KEY], digest)

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
        :meth:`QueueAdmission.admit`, and as :meth:`Submitter.require_room` where there is no room for its result.

        What an earlier try was named for stands: in another class it would be another message, and run twice.
        """
        self._check()
        await self._submitter.require_room(key.account_id, key.share.result_bytes)
        named = idem.priority if idem is not None and idem.revision else None
        priority = await self._admission.admit(ready.model, key.account_id, options.priority, named=named)
        job = self._submitter.job(
            key,
            ready,
            inputs,
            options if priority == options.priority else options._replace(priority=priority),
            trace=_trace(headers),
            waiter=self._instance if is_waiting else "",
            job_id=idem.job_id if idem is not None else "",
            is_short_lived=is_short_lived,
        )
        if idem is not None:
            idem = idem._replace(priority=priority)
        return Submission(job, inputs.frame, options, idem, key.share)

    async def write(self, submission: Submission) -> int:
        """Make the job durable; returns its sequence in ``JOBS``. Raises as :meth:`Submitter.accept`."""
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
        counter = self._accepted.get(job.model)
        if counter is None:
            counter = self._accepted[job.model] = ACCEPTED.labels(job.model)
        counter.inc()
        joblog.accepted(job, seq)
        return seq


def _trace(headers: Mapping[str, str]) -> str:
    """A well-formed ``traceparent``, else nothing."""
    text = headers.get("Traceparent", "")
    return text if text and _TRACE.match(text) else ""
