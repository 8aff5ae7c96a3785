"""Runs predictions for callers that wait: the one way in which every dialect gets from inputs to an end."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from gateway_plugin.admission.acceptance import Acceptance, Submission
from gateway_plugin.admission.keyring import SUBMIT, Keyring, account_of, require_scope, require_urgent
from gateway_plugin.admission.pool import Pool
from gateway_plugin.admission.submission import SubmitOptions
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.service.jobs import JobService
from gateway_plugin.service.jsonresponses import JOB_ID
from gateway_plugin.service.waiting import End, Waiters
from gateway_plugin.settings import GatewaySettings
from gateway_plugin.tables.catalog import Catalog, require_open
from signalbox.jobs import joblog, times
from signalbox.jobs.records import Found
from signalbox.program import metrics
from signalbox.program.errors import DeadlineExceeded
from signalbox.program.tasks import Background
from signalbox.wire.messages import ApiKey, Record
from signalbox.wire.names import PRIORITIES
from signalbox.wire.tensors import Tensor

WAITING = metrics.gauge("callers_waiting", "Callers a gateway plugin keeps waiting for a result.")


class Asked(NamedTuple):
    """A prediction that was read and checked against its version's signature."""

    ready: PreparedVersion
    inputs: DecodedInputs
    options: SubmitOptions = SubmitOptions()


class Ran(NamedTuple):
    """A prediction that succeeded."""

    record: Record
    outputs: list[Tensor]


class Predictions:
    """Keeps callers waiting, each in a place of its account."""

    def __init__(
        self,
        settings: GatewaySettings,
        keyring: Keyring,
        catalog: Catalog,
        acceptance: Acceptance,
        waiters: Waiters,
        jobs: JobService,
    ) -> None:
        self._settings = settings
        self._keyring = keyring
        self._catalog = catalog
        self._acceptance = acceptance
        self._waiters = waiters
        self._jobs = jobs
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

    async def run(self, key: ApiKey, headers: Mapping[str, str], asked: Asked, *, wait_s: float | None = None) -> Ran:
        """The outputs of one prediction, of a key that may use its model.

        wait_s: the caller's own deadline, seconds from now, which ends the job too; None: the model's longest wait.
        Raises as :meth:`Acceptance.admit`, :meth:`complete` and :meth:`JobService.outputs`, and
        :class:`DeadlineExceeded` with the job's id when time is up.
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
        end = await self.complete(submission, wait_s, key)
        if end is None:
            raise DeadlineExceeded("Timed out", job_id=submission.job.id)
        return Ran(end.record, await self._jobs.outputs(end, self._settings.max_upstream_bytes))

    async def complete(
        self, submission: Submission, wait_s: float, key: ApiKey, *, is_kept: bool = False
    ) -> End | None:
        """Write the job and wait for its end, None if it has not ended in time.

        The queued job of a caller that leaves is cancelled. Raises as :meth:`Acceptance.write`, and
        :class:`Unauthorized` where the key ended meanwhile: a wait is long enough for a revocation. is_kept: the
        caller asked for a job rather than an answer, so the job outlives the call. So does one with an
        Idempotency-Key: a caller that sends one means to ask again.
        """
        job = submission.job
        account = self._take_place(key)
        future = self._waiters.expect(job.id)
        try:
            await self._acceptance.write(submission)
            end = await self._waiters.wait(job.id, future, min(wait_s, self._settings.max_wait_s))
        except asyncio.CancelledError:
            if not is_kept and submission.idem is None:
                self._giving_up.start(self._jobs.give_up(job), name="give up a job")
            raise
        finally:
            self._waiters.forget(job.id)
            self._places.release(account)
        self._keyring.require_unended(key)
        if end is not None:
            joblog.step("job.reply_received", end.record, state=end.record.state.value)
        return end

    async def follow(self, found: Found, wait_s: float | None, key: ApiKey) -> End | None:
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

    def _take_place(self, key: ApiKey) -> str:
        """Take a waiting place; returns the account to release it for. Raises as :meth:`Pool.take`."""
        account = account_of(key)
        self._places.take(account, most=key.share.waiting or self._settings.account_waiting)
        return account


def job_headers(record: Record) -> dict[str, str]:
    """What an answer says beside a job's result: its id, how long it waited, and where its time went."""
    return {
        JOB_ID: record.id,
        "X-Signalbox-Queue-Ms": str(round(times.split(record).wait_ms or 0.0)),
        "Server-Timing": ", ".join([f"{name};dur={ms:.2f}" for name, ms in record.parts.items()])
        if not record.attempts
        else _of_attempts(record),
    }


def _of_attempts(record: Record) -> str:
    """The parts of each attempt, oldest first, each with the number of its attempt."""
    return ", ".join(
        f'{part.name};dur={part.end_ms - part.start_ms:.2f};desc="attempt {one.number}"'
        for one in times.attempts(record)
        for part in one.parts
    )
