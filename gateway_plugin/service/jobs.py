"""The one door to jobs, for every dialect: predict, submit, find, wait, cancel, and what came of one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from gateway_plugin.admission.acceptance import Acceptance, Submission
from gateway_plugin.admission.eventtokens import EventTokens
from gateway_plugin.admission.keyring import (
    CANCEL,
    READ,
    SUBMIT,
    Keyring,
    require_scope,
    require_urgent,
)
from gateway_plugin.admission.ownedjobs import OwnedJobs
from gateway_plugin.admission.pool import Pool
from gateway_plugin.admission.submission import SubmitOptions
from gateway_plugin.codec.bodies import BodyCodec, DecodedInputs
from gateway_plugin.codec.decoder import too_large
from gateway_plugin.codec.errorcodes import error_of
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.request import Request
from gateway_plugin.service.descriptions import Descriptions
from gateway_plugin.service.waiting import End, Waiters
from gateway_plugin.settings import GatewaySettings
from gateway_plugin.tables.catalog import Catalog, require_open
from signalbox.bus.client import Bus
from signalbox.jobs import joblog, payloads
from signalbox.jobs.deletion import refusal
from signalbox.jobs.records import Found
from signalbox.program import metrics
from signalbox.program.errors import Bug, DeadlineExceeded, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import tensors
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Record, State
from signalbox.wire.names import PRIORITIES
from signalbox.wire.tensors import Tensor

WAITING = metrics.gauge("callers_waiting", "Callers a gateway plugin keeps waiting for a result.")


class Prediction(NamedTuple):
    """A prediction that was read and checked against its version's signature."""

    ready: PreparedVersion
    inputs: DecodedInputs
    options: SubmitOptions = SubmitOptions()


class PredictionResult(NamedTuple):
    """A prediction that succeeded."""

    record: Record
    outputs: list[Tensor]


class Patience(NamedTuple):
    """How long a caller waits for its job. wait_s: seconds; None = as long as the model lets callers wait.

    is_answer_all: the caller wants the answer and no job, so that the job may be removed soon after. is_kept: it asked
    for a job rather than an answer, so the job outlives its leaving.
    """

    wait_s: float | None = None
    is_answer_all: bool = False
    is_kept: bool = False


class Outcome(NamedTuple):
    """What came of a submission. found: the job as it was last known. end: None = it has not ended in time.

    options: as asked; None for a job that an earlier call with the same Idempotency-Key submitted.
    """

    found: Found
    end: End | None
    options: SubmitOptions | None = None


class Jobs:
    """Jobs, for the keys of their owners. Callers that wait do so each in a place of its account."""

    def __init__(
        self,
        bus: Bus,
        settings: GatewaySettings,
        keyring: Keyring,
        catalog: Catalog,
        codec: BodyCodec,
        owned: OwnedJobs,
        acceptance: Acceptance,
        waiters: Waiters,
        descriptions: Descriptions,
        tokens: EventTokens,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._keyring = keyring
        self._catalog = catalog
        self._codec = codec
        self._owned = owned
        self._acceptance = acceptance
        self._waiters = waiters
        self._descriptions = descriptions
        self._tokens = tokens
        self._giving_up = Background()
        self._places = Pool(
            settings.max_waiting,
            bound="waiting",
            of_all="As many callers wait for results as may",
            of_account="As many of your account's calls wait for results as may now",
            mend="Have fewer of them wait at once, or do not wait: Prefer: respond-async.",
        )
        WAITING.set_function(lambda: self._places.held)

    async def close(self) -> None:
        """Wait until jobs of callers who left are cancelled. Idempotent."""
        await self._giving_up.finish()

    # ------------------------------------------------------------------ submissions

    async def predict(
        self, key: ApiKey, headers: Mapping[str, str], asked: Prediction, *, wait_s: float | None = None
    ) -> PredictionResult:
        """The outputs of one prediction, of a key that may use its model.

        wait_s: the caller's own deadline, seconds from now, which ends the job too; None: the model's longest wait.
        Raises as :meth:`Acceptance.admit`, :meth:`Acceptance.write` and :meth:`outputs`, :class:`Unauthorized` where
        the key ended meanwhile, and :class:`DeadlineExceeded` with the job's id when time is up.
        """
        require_scope(key, SUBMIT)
        ready, inputs, options = asked
        require_open(ready.model)
        if options.priority == PRIORITIES[0]:
            require_urgent(key)
        if wait_s is None:
            wait_s = ready.model.limits.sync_wait_s
        else:
            options = options._replace(deadline_s=min(wait_s, options.deadline_s or ready.model.limits.deadline_s))
        submission = await self._acceptance.admit(
            headers, key, ready, inputs, options, None, is_waiting=True, is_short_lived=True
        )
        end = await self._complete(submission, wait_s, key)
        if end is None:
            raise DeadlineExceeded("Timed out", job_id=submission.job.id)
        return PredictionResult(end.record, await self.outputs(end))

    async def submit(
        self,
        key: ApiKey,
        request: Request,
        target: Sequence[object],
        read: Callable[[], Awaitable[Prediction]],
        patience: Patience | None,
    ) -> Outcome:
        """Submit what a request asks for, once for each Idempotency-Key, and wait for its end where one waits.

        target: what the request's path says, by which submissions under one key differ. read: reads its body, for a
        model that is open; not called where an earlier request has submitted it. Raises as ``read``,
        :meth:`Acceptance.look_up`, :meth:`Acceptance.admit` and :meth:`Acceptance.write`, and :class:`Unauthorized`
        where the key ended meanwhile: a wait is long enough for a revocation.
        """
        require_scope(key, SUBMIT)
        idem = await self._acceptance.look_up(request, key, target)
        if idem is not None and (found := idem.found) is not None:
            if patience is None and not found.record.state.is_terminal:
                return Outcome(found, None)
            end = await self.wait(key, found, patience.wait_s if patience is not None else None)
            return Outcome(await self._latest(found), None) if end is None else _ended(end, None)
        ready, inputs, options = await read()
        # A caller that asked for an id, or may ask again under a key, is promised the result for a day.
        submission = await self._acceptance.admit(
            request.headers,
            key,
            ready,
            inputs,
            options,
            idem,
            is_waiting=patience is not None,
            is_short_lived=patience is not None and patience.is_answer_all and idem is None,
        )
        try:
            if patience is None:
                seq = await self._acceptance.write(submission)
                return Outcome(Found.unclaimed(submission.job, seq), None, options)
            wait_s = ready.model.limits.sync_wait_s if patience.wait_s is None else patience.wait_s
            end = await self._complete(submission, wait_s, key, is_kept=patience.is_kept)
        finally:
            submission.place.leave()
        if end is not None:
            return _ended(end, options)
        found = Found.unclaimed(submission.job)
        return Outcome(found if patience.is_answer_all else await self._latest(found), None, options)

    async def _complete(
        self, submission: Submission, wait_s: float, key: ApiKey, *, is_kept: bool = False
    ) -> End | None:
        """Write the job and wait for its end, None if it has not ended in time.

        The queued job of a caller that leaves is cancelled, but one that ``is_kept`` or has an Idempotency-Key: a
        caller that sends one means to ask again.
        """
        job = submission.job
        account = self._take_place(key)
        future = self._waiters.expect(job.id)
        try:
            await self._acceptance.write(submission)
            end = await self._waiters.wait(job.id, future, min(wait_s, self._settings.max_wait_s))
        except asyncio.CancelledError:
            if not is_kept and submission.idem is None:
                self._giving_up.start(self._owned.give_up(job), name="give up a job")
            raise
        finally:
            self._waiters.forget(job.id)
            self._places.release(account)
        self._keyring.require_unended(key)
        if end is not None:
            joblog.step("job.reply_received", end.record, state=end.record.state.value)
        return end

    def _take_place(self, key: ApiKey) -> str:
        """Take a waiting place; returns the account to release it for. Raises as :meth:`Pool.take`."""
        account = key.account_id
        self._places.take(account, most=key.share.waiting or self._settings.account_waiting)
        return account

    # ------------------------------------------------------------------ jobs that are there

    async def find(self, key: ApiKey, job_id: str) -> Found:
        """A job of the key's account. Raises :class:`Forbidden`, and as :meth:`OwnedJobs.find`."""
        require_scope(key, READ)
        return await self._owned.find(job_id, key.account_id)

    async def _latest(self, found: Found) -> Found:
        """A job as it is now; as it was, where it cannot be read."""
        try:
            return await self._owned.find(found.record.id, found.record.account_id)
        except SignalboxError:
            return found

    async def cancel(self, key: ApiKey, job_id: str) -> Found:
        """Cancel a job of the key's account. Raises :class:`Forbidden`, and as :meth:`OwnedJobs.cancel`."""
        require_scope(key, CANCEL)
        return await self._owned.cancel(job_id, key.account_id)

    async def wait(self, key: ApiKey, found: Found, wait_s: float | None) -> End | None:
        """The end of a job that was submitted before, waited for as if this were the first call.

        wait_s: seconds; None: the model's longest wait.
        """
        record = found.record
        if record.state.is_terminal:
            return End(record, found.body)
        if wait_s is None:
            model = self._catalog.find(record.model)
            wait_s = model.limits.sync_wait_s if model is not None else 0.0
        account = self._take_place(key)
        try:
            end = await self._waiters.follow(record.id, min(wait_s, self._settings.max_wait_s))
        finally:
            self._places.release(account)
        self._keyring.require_unended(key)
        return end

    async def awaited(self, key: ApiKey, found: Found, wait_s: float | None) -> Found:
        """A job that was found, once it has ended; as it then is, where it has not ended after ``wait_s``.

        wait_s: seconds; None: no wait.
        """
        if not wait_s or found.record.state.is_terminal:
            return found
        end = await self.wait(key, found, wait_s)
        return await self._latest(found) if end is None else _ended(end, None).found

    # ------------------------------------------------------------------ what came of a job

    async def describe(self, key: ApiKey, found: Found, *, with_result: bool = True) -> dict[str, Any]:
        """The job as JSON, see :class:`Descriptions`, and its result, or why it cannot be shown.

        key: whose right the address of its events has.
        """
        doc = await self._descriptions.of(found)
        doc["urls"]["events"] = self._tokens.url(found.record.id, key)
        if with_result and found.record.state is State.SUCCEEDED:
            doc["result"] = await self._result_or_reason(End(found.record, found.body), doc)
        return doc

    async def _result_or_reason(self, end: End, doc: dict[str, Any]) -> Any:
        try:
            return orjson.Fragment(await self.result(end, is_strict=True))
        except Unavailable:
            raise
        except SignalboxError as error:
            doc["error"] = {"code": error.code, "message": error.public_message}
            return None

    async def result(self, end: End, *, is_strict: bool = False) -> bytes:
        """The rendered answer of a job that succeeded. is_strict: as JSON that a browser reads.

        Raises the error that ended it otherwise, or that rendering meets.
        """
        record = end.record
        if record.state is not State.SUCCEEDED:
            raise failure(record)
        try:
            if record.ref is not None:
                self._codec.require_answerable(record.ref.size)
            frame = await self._frame(end)
            body = await self._codec.render(record.account_id, frame, record.style, is_strict=is_strict)
        except SignalboxError as error:
            error.facts["job_id"] = record.id
            raise
        joblog.step("job.rendered", record, size_bytes=len(body))
        return body

    async def outputs(self, end: End) -> list[Tensor]:
        """The outputs of a job that succeeded.

        Raises the error that ended it otherwise, and :class:`ResultTooLarge` for more than an answer may have.
        """
        record, limit_bytes = end.record, self._settings.max_upstream_bytes
        if record.state is not State.SUCCEEDED:
            raise failure(record)
        try:
            if record.ref is not None and record.ref.size > limit_bytes:
                raise too_large(record.ref.size, limit_bytes, "")
            return tensors.decode(await self._frame(end))
        except msgspec.MsgspecError as error:  # no fault of the caller's, whatever the model did
            raise Bug(f"The result is no frame of tensors: {error}.", job_id=record.id) from error
        except SignalboxError as error:
            error.facts["job_id"] = record.id
            raise

    async def _frame(self, end: End) -> bytes:
        if end.record.deleted_at:
            raise refusal(end.record)  # since it ended
        ref = end.record.ref
        return end.body if ref is None else await payloads.fetch(self._bus, ref)


def _ended(end: End, options: SubmitOptions | None) -> Outcome:
    return Outcome(Found(end.record, 0, end.body), end, options)


def failure(record: Record) -> SignalboxError:
    """The error for a job that did not succeed, with the job's id."""
    if record.state is State.CANCELLED:
        error = error_of("cancelled", "The job was cancelled.", {})
    elif record.state is State.EXPIRED:
        error = error_of("expired", "The job's deadline passed before it ran.", {})
    else:
        info = record.error
        error = error_of(info.code if info else "internal", info.message if info else "The job failed.", {})
    error.facts["job_id"] = record.id
    return error
